/* What the C++ programs of these tests share: expectations, and a run in a thread, on the ranks of a job. */
#ifndef TUTTI_TESTS_EXPECT_HPP
#define TUTTI_TESTS_EXPECT_HPP

#include <cstdio>
#include <string>
#include <thread>

#include <tutti/tutti.hpp>
#include <unistd.h>

inline int failures;

inline void expect(bool holds, const char *what, int line) {
    if (!holds) {
        std::fprintf(stderr, "line %d: expected %s\n", line, what);
        failures++;
    }
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

/* The exception of type E that `body` throws; `none` if it throws no such. */
template <class E, class F> E thrown_as(F &&body, E none) {
    try {
        body();
    } catch (const E &e) {
        return e;
    } catch (...) {
    }
    return none;
}
template <class F> tutti::error thrown_by(F &&body) { return thrown_as(body, tutti::error(TT_OK, "")); }

inline bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

/* A path of this process's own. */
inline std::string own_path(const std::string &end) { return "/tmp/tutti-cpp-" + std::to_string(getpid()) + end; }

/* Join the job and run `cases`; prints "all is well" on rank 0 if it was so on every rank. */
template <class F> int run_cases(F &&cases) try {
    tutti::init_process_group_options options;
    options.timeout_ms = 60000;
    tutti::group world = tutti::init_process_group(options);
    cases(world);
    int all[] = {failures};
    tutti::all_reduce(world, all, TT_SUM);
    if (world.rank() == 0 && all[0] == 0)
        std::puts("all is well");
    return all[0] != 0;
} catch (const tutti::error &) {
    tutti::report();
    return 1;
}

/* In a thread, whose end gives back the memory that Tutti recycles: what is still there then has leaked. */
template <class F> int main_of(F &&cases) {
    int result = 1;
    std::thread([&] { result = run_cases(cases); }).join();
    return result;
}

#endif
