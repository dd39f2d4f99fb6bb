/* Words for what may fail on the way to a running worker: an errno alone does not say on what. */
#include "launch/local/keeper.h"

const char *tt__start_step_text(int step) {
    static const char *const texts[TT__STEPS] = {
        [TT__STEP_FORK] = "can't start a process (ulimit -u limits a user's, pids.max a control group's)",
        [TT__STEP_ENVIRONMENT] = "can't set its environment",
        [TT__STEP_NULL] = "can't open /dev/null",
        [TT__STEP_STREAMS] = "can't set its stdin, stdout and stderr",
        [TT__STEP_CPUS] = "can't bind it to its CPUs",
        [TT__STEP_SECRET] = "can't hand down the job's secret"};
    return step >= 0 && step < TT__STEPS ? texts[step] : NULL;
}

const char *const tt__keeper_needs[] = {"signalfd() of SIGCHLD", "epoll_create1()", "memory for its workers",
                                        "prctl(PR_SET_CHILD_SUBREAPER)", NULL};
