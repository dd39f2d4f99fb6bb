/* Virtual ranks that survive the loss of others (tutti/elastic.h): each is a thread of its own, which runs the
 * product's src/elastic, and a program that trains, commits and restores. What is below that is virtual: process
 * groups (groups.c), the recorder that the launcher reads, and the job's socket (rank.c). */
#ifndef SIM_TRAINER_H
#define SIM_TRAINER_H

#include "net/job/job_socket.h"
#include "sim/plan.h"
#include "sim/world.h"

#include <tutti/elastic.h>

/* How long a rank waits for the next round: as the product's default, longer than any case may take. A wait for a round
 * that can't come is caught by the check that all launchers end (checks.c). */
enum { SIM_ROUND_WAIT_MS = 1800000 };

typedef struct sim_place {
    int round, rank, world;
} sim_place;

/* A packet from the launcher that is on its way. */
typedef struct sim_told {
    struct sim_told *next;
    tt__job_packet packet;
} sim_told;

/* What the program trains: how often it has seen each example, and how many steps that took. */
typedef struct sim_model {
    int64_t position, steps;
    uint8_t *seen; /* (examples) */
} sim_model;

typedef struct sim_worker {
    sim_agent agent; /* the process */
    int local, number;
    sim_place place;
    bool ended, secondary, watches, hung_up;
    int stop; /* the first signal that it got while it watched for signals */
    struct {
        _Alignas(8) unsigned char bytes[TT__RECOVERY_AT + sizeof(tt__recovery_words)];
    } recorder;
    tt__recovery said;
    int socket; /* -1: it doesn't listen for rounds */
    sim_told *first, **end;
    struct sim_ring *ring; /* of the round that it is in; NULL: none */
    sim_model model;
    int64_t made;     /* commits */
    int synced_round; /* the round in which its state was last made alike; -1: none */
    uint64_t digest;  /* of the model at the last commit */
    struct sim_worker *next;
} sim_worker;

/* The worker whose thread runs; NULL: a launcher's thread runs, or nobody's. */
sim_worker *sim_worker_now(void);

void sim_trainers_begin(const sim_plan *plan);

/* Start a worker on the launcher's node. */
sim_worker *sim_worker_start(const sim_agent *launcher, int local, const sim_place *place);
/* End the worker; `silent`: no kernel tells its peers. */
void sim_worker_kill(sim_worker *w, bool silent);
/* Give it a signal. False: it does not watch for this one. */
bool sim_worker_signal(sim_worker *w, int sig);
void sim_worker_stop(sim_worker *w, int64_t until_ns);
/* Until when stopped workers are missed by nobody: all others of their round have ended well, so no rank waits for
 * them, and they look like workers that still work alone. 0: there is no such round. */
int64_t sim_workers_missed_by_none_until_ns(void);
/* Does it wait for the next round, or for its first group? */
bool sim_worker_waits(const sim_worker *w);
const void *sim_worker_recorder(const sim_worker *w, size_t *size);
bool sim_worker_tell(sim_worker *w, tt__job_kind kind, const tt__job_round *round);
/* Its launcher has ended. */
void sim_worker_hang_up(sim_worker *w);

/* How many examples there are. */
int sim_examples(const sim_plan *plan);

/* ---- trainer.c, for rank.c */

/* The program; returns its exit code. */
int sim_worker_program(sim_worker *w);

/* ---- in keeper.c */

/* The program has ended. */
void sim_keeper_worker_exits(int node, const sim_worker *w, int code);
/* The process whose recorder the launcher has for its i-th worker: the present one, or an earlier one. */
sim_worker *sim_keeper_shown(int node, int i);
void sim_keeper_show(int node, sim_worker *w);
void sim_keeper_forget_shown(int node);
/* The round that the launcher begins next. */
void sim_keeper_note_round(int node, int attempt);

#endif
