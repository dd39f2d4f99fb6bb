/* Looking at a job while it runs: job->look() reads the ranks' recorders. */
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "launch/launcher_parts.h"

#include <stdio.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

static const void *look_recorder(void *user, int i, size_t *size) {
    return tt__watch_recorder(((launcher *)user)->watch, i, size);
}

/* Return the node that has the rank. */
static int node_of(const launcher *l, int rank) {
    const tt__round *round = l->machine.membership.round;
    int node = l->job->nodes - 1;
    while (round && node > 0 && round->of[node].first_rank > rank)
        node--;
    return node;
}

static const char *look_place(void *user, int rank, char *text, size_t size) {
    const launcher *l = user;
    char host[64] = "?";
    int i = rank - l->job->first_rank, node = node_of(l, rank);
    bool here = i >= 0 && i < l->job->workers;
    tt__host_name(host, sizeof host);
    if (!here && l->machine.membership.round)
        snprintf(host, sizeof host, "%s", l->machine.membership.round->of[node].hostname);
    if (here)
        snprintf(text, size, "host %s, pid %d", host, (int)l->workers[i].pid);
    else
        snprintf(text, size, "host %s, node %d", host, node);
    return text;
}

static void look_say(void *user, const char *line) {
    tt__streams_print(&((launcher *)user)->streams, "tutti run: %s", line);
}

static void look_show(void *user, const char *line) { tt__streams_show(&((launcher *)user)->streams, line); }

void tt__launcher_look(launcher *l) {
    const tt__job_look look = {l, look_recorder, look_place, look_say, look_show};
    if (tt__now_ms() < l->look_ms)
        return;
    l->job->look(l->job, &look);
    l->look_ms = tt__deadline_ms(l->job->look_ms);
}
