/* Who failed first in an attempt, on all nodes. */
#include "elastic/launcher.h"

#include <stdlib.h>
#include <string.h>

typedef tt__launcher_state launcher;

/* Order failures by when they ended, over all nodes. */
static void order_by_time(tt__worker *workers, int n) {
    for (int i = 0; i < n; i++) {
        workers[i].order = 0;
        for (int k = 0; k < n; k++)
            workers[i].order += workers[k].when.realtime_ns < workers[i].when.realtime_ns ||
                                (k < i && workers[k].when.realtime_ns == workers[i].when.realtime_ns);
    }
}

static void describe_own(const launcher *l, int i, tt__first *first, char *tail) {
    *first = (tt__first){.rank = l->job->first_rank + i,
                         .node = l->job->node,
                         .local_rank = i,
                         .hostname = l->round ? l->round->of[l->job->node].hostname : NULL,
                         .worker = &l->workers[i],
                         .tail = tt__streams_tail(&l->streams, i, tail)};
}

static void describe_other(const launcher *l, const tt__nodes_event *event, tt__first *first) {
    *first = (tt__first){.rank = event->rank,
                         .node = event->node,
                         .local_rank = event->rank - l->round->of[event->node].first_rank,
                         .hostname = l->round->of[event->node].hostname,
                         .worker = &event->worker,
                         .tail = event->text ? event->text : ""};
}

/* Return the event of the i-th failure on other nodes. */
static const tt__nodes_event *other_node(const launcher *l, int i) {
    const tt__nodes_event *event = l->others;
    while (i--)
        event = event->next;
    return event;
}

static int rank_of_failure(const launcher *l, int i) {
    int own = l->job->workers;
    return i < own ? l->job->first_rank + i : other_node(l, i - own)->rank;
}

/* Of those that failed as number `found` did, find the lowest rank: all nodes are to name the same one. */
static int lowest_alike(const launcher *l, const tt__worker *workers, int n, int found, bool *alike) {
    int lowest = found;
    *alike = false;
    for (int i = 0; found >= 0 && i < n; i++)
        if (i != found &&
            tt__failed_alike(&workers[found], rank_of_failure(l, found), &workers[i], rank_of_failure(l, i))) {
            *alike = true;
            lowest = rank_of_failure(l, i) < rank_of_failure(l, lowest) ? i : lowest;
        }
    return lowest;
}

bool tt__launcher_first(const launcher *l, tt__first *first, int *own, char *tail) {
    int n = l->job->workers, others = 0, found;
    bool alike;
    *own = -1;
    for (const tt__nodes_event *event = l->others; event; event = event->next)
        others++;
    tt__worker *all = others ? malloc((size_t)(n + others) * sizeof *all) : NULL;
    if (all) {
        memcpy(all, l->workers, (size_t)n * sizeof *all);
        for (const tt__nodes_event *event = l->others; event; event = event->next)
            all[n++] = event->worker;
        order_by_time(all, n);
    }
    found = tt__first_failure(all ? all : l->workers, n);
    found = lowest_alike(l, all ? all : l->workers, n, found, &alike);
    free(all);
    if (found < 0)
        return false;
    if (found < l->job->workers) {
        *own = found;
        describe_own(l, found, first, tail);
    } else {
        describe_other(l, other_node(l, found - l->job->workers), first);
    }
    first->alike = alike;
    return true;
}

void tt__launcher_free_events(tt__nodes_event *list) {
    while (list) {
        tt__nodes_event *next = list->next;
        tt__nodes_event_free(list);
        list = next;
    }
}
