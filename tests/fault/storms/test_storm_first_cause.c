/* A storm of first causes: of three ranks one fails by itself after some calls, reports and frees. The launcher's
 * report must name it first, with its own message, whichever of the three ended first. */
#include "support/process.h"
#include "support/storm.h"

#include <stdbool.h>

static const char *const messages[] = {"expected targets in 0..2", "No space left on device", "count", "no more data"};

static bool names_first_cause(const process *p, int rank, int how) {
    char first[64];
    snprintf(first, sizeof first, "tutti run: rank %d failed first: exit code 1", rank);
    const char *report = strstr(p->text[1], first);
    const char *message = report ? strstr(report, "its message:") : NULL;
    return message && strstr(message, messages[how]) && count_of(p->text[1], " failed first: ") == 1 && p->code == 1;
}

static bool play(long number) {
    uint64_t state = storm_case(number);
    int rank = (int)storm_below(&state, 3), how = (int)storm_below(&state, 4);
    int calls = (int)storm_below(&state, storm_below(&state, 2) ? 4 : 2000);
    bool tcp = storm_below(&state, 2);
    char program[4096], arguments[3][16];
    snprintf(program, sizeof program, "%s/fails_by_itself", getenv("TT_PROGRAMS"));
    snprintf(arguments[0], sizeof arguments[0], "%d", rank);
    snprintf(arguments[1], sizeof arguments[1], "%d", calls);
    snprintf(arguments[2], sizeof arguments[2], "%d", how);
    setenv("TT_TRANSPORT", tcp ? "tcp" : "auto", 1);
    process *p =
        start_tutti("run", "--standalone", "--nproc-per-node=3", program, arguments[0], arguments[1], arguments[2]);
    process_finish(p);
    bool good = names_first_cause(p, rank, how);
    if (!good)
        fprintf(stderr, "case %ld (seed %ld): rank %d after %d calls%s, exit code %d:\n%s\n", number,
                storm_number("TT_STORM_SEED", 1), rank, calls, tcp ? ", over TCP" : "", p->code, p->text[1]);
    process_free(p);
    return good;
}

static void who_fails_by_itself_is_named_first(void **state) {
    (void)state;
    long cases = storm_cases(10), bad = 0;
    for (long i = 0; i < cases; i++)
        bad += !storm_skips(i) && !play(i);
    print_message("%ld first causes, %ld of them not named first\n", cases, bad);
    assert_int_equal(bad, 0);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_fails_by_itself_is_named_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
