/* The inside of all averagers of parameters: what they share, and a table of what they differ in. */
#ifndef TT_PARALLEL_LOCAL_SGD_AVERAGER_H
#define TT_PARALLEL_LOCAL_SGD_AVERAGER_H

#include "optim/dict.h"
#include "parallel/local_sgd/flat.h"
#include "reducer/text_agreement.h"

#include <tutti/local_sgd.h>

/* A kind of averager. Its struct begins with a tt_model_averager. */
typedef struct tt__averager_class {
    const char *name;  /* of the public constructor: "tt_diloco" */
    const char *doing; /* what its collectives are part of, for errors */
    size_t size;       /* of its struct */
    /* State of a parameter's shape, of f64 for one of f64 and else of f32, e.g. {"momentum_buffer"}. */
    int slots;
    const char *const *slot_names;
    /* Does the next step average? a->steps: those before it. */
    bool (*due)(const tt_model_averager *a);
    /* Average. `all`: over all ranks, whatever is due. */
    tt_status (*average)(tt_model_averager *a, bool all);
    void (*tell)(const tt_model_averager *a); /* let all that may wait for this rank know of the last error; NULL: those
                                               * of a->group */
    void (*end)(tt_model_averager *a);        /* release what the kind added; NULL: nothing */
} tt__averager_class;

/* State for each parameter, laid out as the buckets are. */
typedef struct tt__averager_slot {
    void **data;       /* of each bucket */
    tt_tensor **views; /* of each parameter */
} tt__averager_slot;

struct tt_model_averager {
    const tt__averager_class *cls;
    tt_group *group;
    tt__flat flat;
    int64_t steps;
    tt__averager_slot *slots;
    tt__dict dict;    /* the last state dict that was asked for */
    tt_status broken; /* why nothing can be averaged any more; TT_OK: it can */
};

/* What a constructor is given, and what its kind adds. */
typedef struct tt__averager_plan {
    const tt__averager_class *cls;
    tt_model_averager **out;
    tt_group *group;
    const tt_named_tensors *params;
    const char *const *options; /* texts, which all ranks must have alike: "period 4" */
    size_t option_count;
    const tt_dtype *as; /* what parameters travel as; NULL: their own types */
    tt__joint_call call;
} tt__averager_plan;

/* Check what can only be checked here, compare options and parameters over the ranks, and make the averager. The kind's
 * checks of its options come between the two steps, so that a value that is wrong, or differs, is the same error on
 * every rank. */
tt_status tt__averager_agree(tt__averager_plan *plan);
tt_status tt__averager_make(const tt__averager_plan *plan, tt_model_averager **made);

/* Hand `a` over to the caller of the constructor; after a failure, free it. */
tt_status tt__averager_finish(const tt__averager_plan *plan, tt_model_averager *a, tt_status status);

/* Average the parameters themselves over a group. */
tt_status tt__average_plainly(tt_model_averager *a, tt_group *group);

#endif
