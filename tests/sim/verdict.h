/* What is found out about a case. Each case runs in a process of its own, which ends at the first failed check. */
#ifndef SIM_VERDICT_H
#define SIM_VERDICT_H

#include <stddef.h>
#include <stdint.h>

typedef struct sim_verdict {
    char check[24]; /* the check that failed; "": none */
    char text[1000];
    uint64_t digest; /* of all that happened, and when */
    int64_t virtual_ns, attempts;
    int64_t kept;                                 /* how often a surviving worker was told its next round */
    int64_t requests, first_requests;             /* of all launchers: in all; until the first attempt began */
    int64_t ordinary, ordinary_first, most_first; /* of all but the coordinator, likewise; the most of one */
} sim_verdict;

/* In shared memory, for the process that started this one. */
extern sim_verdict *sim_result;

/* End this process: the check failed. */
_Noreturn void sim_fail(const char *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* End this process: all is well. */
_Noreturn void sim_pass(void);

/* Return what was allocated; without memory no case can be judged. */
void *sim_memory(void *memory);

#endif
