/* Schedules of pipelines: what each rank does in a step, in which order. Pure: no threads, no tensors, no clock.
 *
 * Rank r of R has `chunks` stages; its chunk c is stage c R + r of all R x chunks. A step has `micros` micro-batches.
 * A schedule is a list of actions for each rank; an action may begin when what it needs has ended:
 *   F  forward of a micro-batch: the stage before has run its F
 *   B  backward: the stage's own F, and the B or I of the next stage
 *   I  the half of a backward that computes the gradient of the stage's input: as B
 *   W  the other half, which computes the weights' gradients: the stage's own I
 * Each stage's B or W run in the order of the micro-batches, so that gradients are sums in that order, whatever the
 * schedule. */
#ifndef TT_PARALLEL_PIPELINE_SCHEDULE_H
#define TT_PARALLEL_PIPELINE_SCHEDULE_H

#include <tutti/pipeline.h>

typedef enum tt__act_kind { TT__FORWARD, TT__BACKWARD, TT__INPUT_GRADS, TT__WEIGHT_GRADS, TT__ACT_KINDS } tt__act_kind;

typedef struct tt__act {
    tt__act_kind kind;
    int64_t chunk, micro;
} tt__act;

typedef struct tt__act_list {
    tt__act *acts;
    int64_t count;
} tt__act_list;

typedef struct tt__schedule {
    int64_t ranks, chunks, micros;
    tt__act_list *lists; /* (ranks) */
} tt__schedule;

/* How long a stage's actions take, in any unit, by tt__act_kind. */
typedef struct tt__stage_cost {
    double of[TT__ACT_KINDS];
} tt__stage_cost;

/* "1F1B"; "?" for no schedule. */
const char *tt__schedule_name(tt_pipeline_schedule kind);

/* One character: F, B, I, W. */
char tt__act_letter(tt__act_kind kind);

/* Make a schedule; free it with tt__schedule_free(), also after a failure. Errors: TT_ERR_INVALID sizes that the
 * schedule can't have, with what it needs; TT_ERR_MEMORY. */
tt_status tt__schedule_make(tt__schedule *out, tt_pipeline_schedule kind, int64_t ranks, int64_t chunks,
                            int64_t micros);

/* Make a schedule of forwards only, for evaluation. */
tt_status tt__schedule_make_forward(tt__schedule *out, int64_t ranks, int64_t chunks, int64_t micros);

void tt__schedule_free(tt__schedule *schedule);

/* Check that each action that must be in the lists is there once, and that weights get their gradients in the order of
 * the micro-batches. TT_ERR_INVALID says what is wrong. `forward_only`: the schedule of an evaluation. */
tt_status tt__schedule_check(const tt__schedule *schedule, bool forward_only);

typedef struct tt__simulated {
    double *begin, *end; /* of all actions: rank 0's list, then rank 1's, ...; the caller's, may be NULL */
    double span;         /* from 0 to the last end */
    double idle_share;   /* of ranks x span */
    int64_t most_held;   /* micro-batches whose activations a rank holds at once, at most */
} tt__simulated;

/* Simulate the lists with these times: costs[stage], and `transfer` between an end and a beginning on another rank.
 * Fills *simulated. TT_ERR_STATE: the ranks would wait for each other; the text says for what. */
tt_status tt__schedule_simulate(const tt__schedule *schedule, const tt__stage_cost *costs, double transfer,
                                tt__simulated *simulated);

#endif
