#include "launch/launcher_parts.h"

#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "base/text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tt__launcher_state launcher;

enum { REASON = 700, STOPPED_MS = 1000 };

/* A worker that is stopped (SIGSTOP, Ctrl-Z) and has been in each look for a while, or -1. A short stop is no failure,
 * nor are many, as of a profiler that samples. */
static int stopped_worker(const launcher *l) {
    int64_t now_ms = tt__now_ms();
    int found = -1;
    for (int i = 0; i < l->job->workers; i++) {
        tt__worker *w = &l->workers[i];
        bool runs = w->pid && !w->ended;
        if (runs && tt__proc_stopped_ms(&w->stop, w->pid, now_ms) >= STOPPED_MS && found < 0)
            found = i;
    }
    return found;
}

/* A worker that is about to be ended, and of which it is known why, or -1. */
static int doomed_worker(const launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        if (!l->workers[i].ended && l->workers[i].message)
            return i;
    return -1;
}

static int running_workers(const launcher *l) {
    int n = 0;
    for (int i = 0; i < l->job->workers; i++)
        n += l->workers[i].pid && !l->workers[i].ended;
    return n;
}

/* Write what keeps the attempt from going on; false: nothing does. */
static bool say_end(const launcher *l, char text[REASON]) {
    const tt__machine *m = &l->machine;
    const tt__lost_node *lost = m->ledger.lost;
    tt__failure failure;
    tt__first first;
    char tail[TT__TAIL_BYTES + 1], attempt[TT__ATTEMPT_TEXT];
    if (lost) {
        snprintf(text, REASON, "node %d (%s) is lost: %.300s", lost->node, m->membership.round->of[lost->node].hostname,
                 lost->why ? lost->why : "?");
    } else if (m->ending.damage == TT__KEEPER_LOST) {
        snprintf(text, REASON, "the keeper process was killed");
    } else if (m->ending.own_signal || m->ending.remote_signal) {
        snprintf(text, REASON, "the job was told to end");
    } else if (m->membership.state == TT__LOST_JOB) {
        snprintf(text, REASON, "this node has lost the job, and is about to look for it again");
    } else if (m->attempt.regroups) {
        snprintf(text, REASON, "another round is about to begin: %.300s", *l->why ? l->why : "nodes come or go");
    } else if (tt__ledger_first(&m->ledger, &failure)) {
        tt__launcher_describe(l, &failure, &first, tail);
        snprintf(text, REASON, "%s", tt__attempt_text(&first, attempt, sizeof attempt));
    } else {
        return false;
    }
    return true;
}

/* Write why not all is well; false: all is. */
static bool say_trouble(const launcher *l, char text[REASON]) {
    int i;
    if (!tt__machine_waits_for_nodes(&l->machine) && say_end(l, text))
        return true;
    if ((i = doomed_worker(l)) >= 0)
        snprintf(text, REASON, "rank %d (pid %d): %.500s", l->job->first_rank + i, (int)l->workers[i].pid,
                 l->workers[i].message);
    else if ((i = stopped_worker(l)) >= 0)
        snprintf(text, REASON, "rank %d (pid %d) is stopped by a signal", l->job->first_rank + i,
                 (int)l->workers[i].pid);
    else
        return false;
    return true;
}

static const char *state_text(const launcher *l) {
    char reason[REASON];
    if (tt__machine_waits_for_nodes(&l->machine))
        return "joining";
    if (say_end(l, reason))
        return tt__machine_goes_on(&l->machine) ? "restarting" : "ending";
    return tt__ledger_ended(&l->machine.ledger) == l->job->workers ? "ended" : "running";
}

bool tt__launcher_health(void *user, char body[TT__HEALTH_BODY]) {
    const launcher *l = user;
    char reason[REASON];
    bool trouble = say_trouble(l, reason);
    json_t *text = trouble ? json_string(reason) : json_null();
    json_t *attempt = l->job->attempt < 0 ? json_null() : json_integer(l->job->attempt);
    json_t *id = json_string(l->job->run_id);
    json_t *all =
        json_pack("{s:b, s:s, s:o, s:o, s:i, s:o, s:i, s:i, s:i, s:i}", "healthy", (int)!trouble, "state",
                  state_text(l), "reason", text ? text : json_string("?"), "run_id", id ? id : json_null(), "node",
                  l->job->node, "attempt", attempt, "first_rank", l->job->first_rank, "workers", l->job->workers,
                  "running", running_workers(l), "ended", tt__ledger_ended(&l->machine.ledger));
    char *line = all ? tt__json_dumps(all, 0) : NULL;
    if (line && strlen(line) < TT__HEALTH_BODY)
        snprintf(body, TT__HEALTH_BODY, "%s", line);
    else
        snprintf(body, TT__HEALTH_BODY, "{\"healthy\": %s}", trouble ? "false" : "true");
    free(line);
    json_decref(all);
    return !trouble;
}
