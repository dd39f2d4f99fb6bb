#include "sim/history.h"

#include "sim/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_history sim_seen;

void sim_history_begin(int nodes) {
    sim_seen = (sim_history){.exits = sim_memory(calloc((size_t)nodes, sizeof *sim_seen.exits))};
    for (int k = 0; k < nodes; k++)
        sim_seen.exits[k].unread_ns = SIM_NEVER;
}

/* Make room for an element of `size` bytes after the first `n`. Lists grow to powers of two. */
static void *grow(void *list, int n, size_t size) {
    if (n & (n - 1))
        return list;
    return sim_memory(realloc(list, (size_t)(n ? 2 * n : 1) * size));
}

void sim_note_start(const sim_start *start) {
    sim_seen.starts = grow(sim_seen.starts, sim_seen.start_count, sizeof *start);
    sim_seen.starts[sim_seen.start_count++] = *start;
    sim_trace(start->node, "begins attempt %d: ranks %d to %d of %d", start->attempt, start->first_rank,
              start->first_rank + start->workers - 1, start->world);
}

void sim_note_end(const sim_end *end) {
    sim_seen.ends = grow(sim_seen.ends, sim_seen.end_count, sizeof *end);
    sim_seen.ends[sim_seen.end_count++] = *end;
}

void sim_note_report(const sim_report *report, bool of_job) {
    sim_seen.reports = grow(sim_seen.reports, sim_seen.report_count, sizeof *report);
    sim_seen.reports[sim_seen.report_count++] = *report;
    sim_seen.exits[report->node].reported = of_job;
}

void sim_note_line(int node, const char *line) {
    sim_trace(node, "says: %s", line);
    if (strstr(line, " is lost: "))
        sim_seen.exits[node].lost_some = true;
    if (strstr(line, "this node was not needed"))
        sim_seen.exits[node].unneeded = true;
}

void sim_note_exit(int node, tt_status status, int code) {
    sim_exit *x = &sim_seen.exits[node];
    x->ended = true;
    x->status = status;
    x->code = code;
    x->when_ns = sim_now_ns();
    snprintf(x->error, sizeof x->error, "%s", status ? tt_last_error() : "");
    sim_trace(node, "ends with code %d%s%s", code, status ? ": " : "", x->error);
}

void sim_note_signal_read(int node, int sig) {
    sim_exit *x = &sim_seen.exits[node];
    sim_trace(node, "takes signal %d", sig);
    x->unread_ns = SIM_NEVER;
    if (x->signal)
        return;
    x->signal = sig;
    x->signal_ns = sim_now_ns();
}

void sim_note_signal_sent(int node) {
    if (sim_seen.exits[node].unread_ns == SIM_NEVER)
        sim_seen.exits[node].unread_ns = sim_now_ns();
}
