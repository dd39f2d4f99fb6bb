/* What the launchers of a case have done, as the stand-ins around them saw it. */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "sim/world.h"

#include <tutti/base.h>

/* A launcher began an attempt. */
typedef struct sim_start {
    int node, attempt, first_rank, workers, world;
    int64_t when_ns;
    int generation, restarts, nodes;
} sim_start;

/* A launcher has heard that its worker ended. */
typedef struct sim_end {
    int node, attempt, rank, status, exec_errno;
    const struct sim_round *round; /* the round that it was in */
    bool secondary, told;          /* it had reported that another one failed; it had got a signal */
    bool waited;                   /* it waited for the next round */
    int64_t realtime_ns;           /* by the launcher's clock */
    int64_t error_s;               /* when it failed, by its report; 0: not in the report */
    int64_t signal_s;              /* when it got the signal */
} sim_end;

/* A launcher named the first failure of an attempt. */
typedef struct sim_report {
    int node, attempt, rank, first_node, status;
} sim_report;

/* How a launcher ended. */
typedef struct sim_exit {
    bool ended, lost_some; /* lost_some: it reported that another node is lost */
    bool unneeded;         /* it reported that the job ended without it */
    bool reported;         /* it reported the job's first failure */
    tt_status status;
    int code;
    int64_t when_ns;
    int signal;                   /* the first that it read */
    int64_t signal_ns, unread_ns; /* when it read that; since when a signal is unread */
    char error[400];
} sim_exit;

typedef struct sim_history {
    sim_start *starts;
    sim_end *ends;
    sim_report *reports;
    sim_exit *exits; /* (nodes) */
    int start_count, end_count, report_count;
} sim_history;

extern sim_history sim_seen;

void sim_history_begin(int nodes);
void sim_note_start(const sim_start *start);
void sim_note_end(const sim_end *end);
void sim_note_report(const sim_report *report, bool of_job);
void sim_note_line(int node, const char *line);
void sim_note_exit(int node, tt_status status, int code);
void sim_note_signal_read(int node, int sig);
void sim_note_signal_sent(int node);

/* A request to the store was sent: items of the plan that are counted from requests may happen. */
void sim_note_request(sim_agent *agent);

#endif
