/* Will there be another attempt when this one is over, and why not? */
#include "elastic/launcher.h"

typedef tt__launcher_state launcher;

/* Could a worker not be executed, here or elsewhere? */
static bool is_not_executable(const launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        if (l->workers[i].exec_errno)
            return true;
    for (const tt__nodes_event *event = l->others; event; event = event->next)
        if (event->worker.exec_errno)
            return true;
    return false;
}

const char *tt__launcher_must_end(const launcher *l) {
    return l->got_signal || l->node_signal || l->stopped ? "the job was told to end"
           : l->lost && !tt__launcher_replaces(l)        ? "a node is missing"
           : l->node_left                                ? "a node is missing"
           : l->keeper_lost                              ? "the keeper process was killed"
           : l->stuck                                    ? "processes of this attempt are still there"
                                                         : NULL;
}

const char *tt__launcher_against_another(const launcher *l) {
    return is_not_executable(l) ? "what can't be executed would fail the same way" : tt__launcher_must_end(l);
}

bool tt__launcher_has_attempts_left(const launcher *l) { return l->job->restarts < l->job->max_restarts; }

bool tt__launcher_failed_by_itself(const launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    bool failed = tt__launcher_first(l, &first, &own, tail), changes = l->regroups || l->lost;
    if (l->lost && !tt__launcher_is_elastic(l))
        return true;
    return failed && !(changes && tt__is_consequence(first.worker));
}

bool tt__launcher_any_goes_on(const launcher *l) { return l->nodes ? l->any_kept : l->kept; }

bool tt__launcher_attempt_failed(const launcher *l) {
    return tt__launcher_failed_by_itself(l) || (tt__launcher_any_goes_on(l) && !l->regroups && !l->lost);
}

bool tt__launcher_another_follows(const launcher *l) {
    bool counts = tt__launcher_attempt_failed(l);
    bool ended_well = !counts && (l->all_well || (!l->regroups && !l->lost)); /* just before nodes came or went */
    return !(ended_well || (counts && !tt__launcher_has_attempts_left(l)) || tt__launcher_against_another(l));
}
