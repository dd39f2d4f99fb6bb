/* The inside of all optimizers: groups of parameters, with options for each group and state for each parameter, and a
 * rule that updates contiguous memory.
 *
 * State lies flat. For each slot of a group and each element type there is one allocation, in which each parameter has
 * a range, in the parameters' order, on a 64-byte boundary. The state tensors are views of these ranges. */
#ifndef TT_OPTIM_OPTIMIZER_H
#define TT_OPTIM_OPTIMIZER_H

#include "optim/dict.h"
#include "optim/rules/rule.h"
#include "tensor/core/tensor.h"

#include <tutti/optim.h>

_Static_assert((int)TT__SGD_OPTIONS <= TT__OPTIM_OPTIONS && (int)TT__ADAM_OPTIONS <= TT__OPTIM_OPTIONS, "room");
_Static_assert((int)TT__ADAM_SLOTS <= TT__OPTIM_SLOTS && (int)TT__RMSPROP_SLOTS <= TT__OPTIM_SLOTS, "room");

/* The element types that rules can have, and their number. */
enum { TT__OPTIM_F32, TT__OPTIM_F64, TT__OPTIM_TYPES };

typedef struct tt__optimizer_class {
    const char *name; /* "tt_sgd" */
    int options;
    const char *const *option_names;
    int slots;
    const char *const *slot_names;
    bool counts_steps;
    int signed_option; /* the only one that may be below 0; 0: none may */
    /* Are these values possible, together? Each is finite and has the right sign. `who`: the call that sets them. NULL:
     * always. */
    tt_status (*check)(const char *who, const double *option);
    /* Do these options need the slot? NULL: always. */
    bool (*uses)(const double *option, int slot);
    const tt__rule_kernels *(*kernels)(void); /* the rule's loops, for memory of the host */
    /* A pass before the update that adds to a parameter's `sums`, from which ratio() computes the update's ratio. NULL:
     * none. */
    const tt__rule_kernels *(*measure)(void);
    double (*ratio)(const double *option, const double *sums);
    bool measures_grads;                       /* the rule needs the norm of all gradients */
    bool (*takes_rows)(const double *option);  /* may gradients be sparse, with these options? NULL: never */
    bool takes_rows_only;                      /* gradients must be sparse */
    double (*begins_as)(const double *option); /* the initial value of state slots; NULL: 0 */
    tt__optim_rule rule;                       /* for the kernel "step" of other devices */
    /* index of option beta1, which beta2 follows. Both are below 1, and the rule needs their powers. 0: none */
    int betas;
} tt__optimizer_class;

typedef struct tt__optim_param {
    tt_tensor *tensor;         /* the program's, watched; or the optimizer's own master of `low` */
    tt_tensor *low;            /* the program's, of 16 bits, watched; NULL: `tensor` is the program's */
    tt_dtype dtype, low_dtype; /* when it was added */
    int type;                  /* TT__OPTIM_F32, ... */
    int64_t numel;
    int64_t offset; /* where its state begins, in elements */
} tt__optim_param;

/* A parameter in a step: contiguous memory, and where it begins among the elements of all runs. */
typedef struct tt__optim_run {
    size_t param;      /* its number in the group */
    tt_tensor *tensor; /* the parameter, or a contiguous copy */
    tt_tensor *grad;
    const tt_tensor *rows; /* the rows that `grad` has; NULL: all */
    int64_t begin;
    void *state[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
    tt__update update;
    double sums[TT__RULE_SUMS]; /* what the rule measured */
} tt__optim_run;

/* The state of a group in training. */
typedef struct tt__optim_state {
    tt_tensor *flat[TT__OPTIM_TYPES][TT__OPTIM_SLOTS]; /* NULL: no parameter has this slot yet */
    tt_tensor **slot;                                  /* views: parameter by parameter; NULL: none yet */
    int64_t *steps;                                    /* of each parameter */
} tt__optim_state;

typedef struct tt__optim_group {
    int64_t first; /* number of its first parameter */
    size_t count;
    tt__optim_param *params;
    const tt_device *device;            /* of all of them */
    int64_t flat_size[TT__OPTIM_TYPES]; /* elements of a slot */
    double option[TT__OPTIM_OPTIONS];   /* in the order of the rule's enum */
    bool scheduled;                     /* a scheduler has noted its learning rate */
    double initial_lr;                  /* if so: the rate before the first scheduler */
    tt__optim_state state;
    tt__optim_run *runs; /* room for the runs of a step, one for each parameter */
} tt__optim_group;

enum { TT__JOIN_ROOM = 2 };

/* What an optimizer of slices asks of its maker (parallel/zero), because other ranks have the other slices. */
typedef struct tt__optim_shards {
    const char *kind; /* names the maker; compared as an address */
    /* A step begins, in the call `who`. */
    tt_status (*begin)(void *user, const char *who);
    /* Its parameters were updated. Collective, like join(): a rank that failed before calls both, too, with its status,
     * that of its last error, as `own`. There they return `own`, and on other ranks an error that names the rank. */
    tt_status (*end)(void *user, const char *who, tt_status own);
    /* values (n) := their sums over all ranks, or the largest. There is room for TT__JOIN_ROOM more. */
    tt_status (*join)(void *user, const char *who, tt_status own, double *values, int64_t n, bool largest);
    /* This rank failed while others wait for it in join() with another n. They fail with its last error. */
    void (*abandon)(void *user);
    void (*zero_grad)(void *user);
    /* The state of whole parameters; NULL and an error: it was not gathered. */
    const tt_named_tensors *(*state_dict)(void *user);
    tt_status (*load_state_dict)(void *user, const tt_named_tensors *state);
    void (*destroy)(void *user);
} tt__optim_shards;

/* Something that steps an optimizer in the program's place: parallel/ddp/ddp_step.c. */
typedef struct tt__optim_stepper {
    void (*let_go)(void *user); /* the optimizer is about to be freed */
} tt__optim_stepper;

struct tt_optimizer {
    const tt__optimizer_class *cls;
    double defaults[TT__OPTIM_OPTIONS]; /* for groups that are added */
    size_t group_count;
    tt__optim_group *groups;
    double grad_norm;               /* of all gradients in this step, if the class measures them */
    bool masters_begun;             /* master parameters have this step's gradients, see tt__masters_begin() */
    const tt__optim_shards *shards; /* NULL: parameters are whole */
    void *shards_user;
    const tt__optim_stepper *stepper; /* NULL: the program steps it */
    void *stepper_user;
    tt__dict dict;    /* the last state dict that was asked for; steps and options in it are copies */
    tt__dict masters; /* the last list of master parameters */
};

/* Make an optimizer of this class whose options are `option`, over one group. NULL on failure; arguments are checked
 * here. */
tt_optimizer *tt__optimizer_new(const tt__optimizer_class *cls, const tt_named_tensors *params, const double *option);

static inline bool tt__optim_uses(const tt__optimizer_class *cls, const double *option, int slot) {
    return !cls->uses || cls->uses(option, slot);
}

/* Check the values of all options: their signs, betas below 1, and what the class asks for. TT_ERR_INVALID. */
tt_status tt__optim_check_options(const char *who, const tt__optimizer_class *cls, const double *option);

/* Check a number as most need it: finite, and at least `least`. */
tt_status tt__optim_check_number(const char *who, const char *name, double value, double least);

/* Return the place of an option's value; -1: the class has no such option. */
int tt__optim_option_index(const tt__optimizer_class *cls, const char *name);

/* Put a value among `option`, by name. TT_ERR_NOT_FOUND, with the names there are. */
tt_status tt__optim_option_put(const char *who, const tt__optimizer_class *cls, double *option, const char *name,
                               double value);

/* Is this the type of parameters that get masters? */
static inline bool tt__wants_master(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16; }

/* Make the master of x, a leaf of the optimizer's own; NULL: no memory. Ended by tt__tensor_disown(). */
tt_tensor *tt__master_of(tt_tensor *x);

/* Set up a state without slots. On failure nothing is left. */
tt_status tt__optim_state_init(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state);
void tt__optim_state_free(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state);

/* The state dict of the optimizer's own parameters, and back, also where these are slices. */
const tt_named_tensors *tt__optim_own_state_dict(tt_optimizer *optimizer);
tt_status tt__optim_load_own_state_dict(tt_optimizer *optimizer, const tt_named_tensors *state);

/* Fail with TT_ERR_STATE, in call `name`, if the optimizer has a stepper. */
tt_status tt__optim_check_unattended(const char *name, const tt_optimizer *optimizer);

/* Step these parameters alone: `count` numbers through all groups, ascending. Parameters without a gradient stay as
 * they are. The stepper calls it, with each parameter once a step. Not for rules that measure gradients, nor for
 * slices. */
tt_status tt__optim_step_some(const tt_optimizer *optimizer, const int64_t *numbers, size_t count);

/* Return the view of a parameter's slot, which is made, of zeros, if it doesn't exist. NULL if memory is out. */
tt_tensor *tt__optim_state_slot(const tt__optimizer_class *cls, const tt__optim_group *group, tt__optim_state *state,
                                size_t param, int slot);

/* ---- masters: the f32 values of parameters of 16 bits, which an optimizer updates in their place. After a step each
 * parameter is its master, rounded. Where a parameter was changed since (a program loaded others, or DDP sent rank
 * 0's), the master follows. ---- */

/* Bring masters up to their parameters' values and gradients. */
tt_status tt__masters_begin(const char *who, tt_optimizer *optimizer);

/* Bring one parameter's master, which it has, up to its value and gradient. */
tt_status tt__master_begin(const char *who, const tt__optim_param *param);

/* For parameters that are about to become 16-bit: make a master of each one of f32, in
 * *list (NULL on failure). tt__masters_take() then gives them to the parameters that have become 16-bit, and ends the
 * rest, or all where `keep` is false. */
tt_status tt__masters_prepare(const char *who, const tt_optimizer *optimizer, tt_tensor ***list);
void tt__masters_take(tt_optimizer *optimizer, tt_tensor **list, bool keep);

/* The parameter := its updated master, rounded. */
tt_status tt__master_end(const char *who, const tt__optim_param *param);

/* ---- one pass of a rule over all parameters of a group (fused.c) ---- */

/* Update n runs in the host's memory. Fails only where parameters are slices, if their measures can't be joined. */
tt_status tt__optim_fused(const tt_optimizer *optimizer, const tt__optim_group *group, tt__optim_run *runs, size_t n);

/* Update the rows that a run's gradient is of. */
void tt__optim_rows(const tt_optimizer *optimizer, const tt__optim_group *group, const tt__optim_run *run);

/* The same on another device than the host. `run->update.state` is set. */
tt_status tt__optim_rows_far(const char *who, const tt_optimizer *optimizer, const tt__optim_group *group,
                             tt__optim_run *run);

/* Does the rule take the gradient that parameter `i` has? Else TT_ERR_UNSUPPORTED. */
tt_status tt__optim_check_rows(const char *who, const tt_optimizer *optimizer, const tt__optim_group *group, size_t i);

#endif
