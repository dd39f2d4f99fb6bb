/* tutti/cpp/data_parallel.hpp: one process, a thread a replica. */
#ifndef TUTTI_CPP_DATA_PARALLEL_HPP
#define TUTTI_CPP_DATA_PARALLEL_HPP

#include <tutti/cpp/nn.hpp>
#include <tutti/data_parallel.h>

#include <vector>

namespace tutti {

/* replicas 0: one a thread that operators may use. */
inline module data_parallel(module &&wrapped, int replicas = 0) {
    tt_data_parallel_args a = TT_DATA_PARALLEL_ARGS_INIT;
    a.module = wrapped.release(), a.replicas = replicas;
    return module(detail::call(tt_data_parallel_with, a));
}

/* One replica a device: the module's, and one for each copy. */
inline module data_parallel(module &&wrapped, std::vector<module> &&copies) {
    std::vector<tt_module *> list;
    for (module &copy : copies)
        list.push_back(copy.release());
    tt_data_parallel_args a = TT_DATA_PARALLEL_ARGS_INIT;
    a.module = wrapped.release(), a.copies = list.data(), a.copy_count = static_cast<std::int64_t>(list.size());
    return module(detail::call(tt_data_parallel_with, a));
}

/* Which replica this thread runs. */
inline int data_parallel_replica() { return tt_data_parallel_replica(); }

inline std::vector<tensor> parallel_scatter(const tensor &x, std::int64_t replicas) {
    std::vector<tt_tensor *> parts(replicas > 0 ? static_cast<std::size_t>(replicas) : 1);
    std::int64_t count = tt_parallel_scatter(x.get(), replicas, parts.data());
    if (count < 0)
        check(tt_last_status());
    std::vector<tensor> made;
    for (std::int64_t i = 0; i < count; i++)
        made.emplace_back(parts[static_cast<std::size_t>(i)]);
    return made;
}

inline tensor parallel_gather(const std::vector<tensor> &parts) {
    std::vector<tt_tensor *> list;
    for (const tensor &x : parts)
        list.push_back(x.get());
    return tensor(tt_parallel_gather(list.data(), static_cast<std::int64_t>(list.size())));
}

} // namespace tutti

#endif
