/* The inside of all schedulers: a class gives the learning rate of an epoch, by PyTorch's recursive formulas. A
 * scheduler's options and its place are named numbers, which make its state dict. */
#ifndef TT_OPTIM_SCHEDULER_H
#define TT_OPTIM_SCHEDULER_H

#include "optim/optimizer.h"

typedef struct tt__lr_class {
    const char *name; /* "tt_step_lr" */
    int numbers;
    const char *const *number_names;
    const char *milestones_name; /* in the state dict; NULL: it has none */
    /* Are these numbers possible? `who`: the call that brings them. NULL: there are none. */
    tt_status (*check)(const char *who, const tt_optimizer *o, const double *number);
    /* The rate of group g in epoch `last_epoch`; lr: the rate before. NULL: `step` needs none. */
    double (*rate)(const tt_lr_scheduler *s, size_t g, double lr);
    /* The rate in epoch 0 for a scheduler that a sequence begins again. NULL: that of rate(). */
    double (*first_rate)(const tt_lr_scheduler *s, size_t g);
    /* Go to the next epoch, or to epoch 0 again. NULL: as tt__lr_step_rates(). */
    tt_status (*step)(tt_lr_scheduler *s, bool again);
    /* Go to the next epoch, with the metric of the last one. NULL: the class needs no metric. */
    tt_status (*step_metric)(tt_lr_scheduler *s, double metric);
} tt__lr_class;

enum { TT__LR_NUMBERS = 12 };

struct tt_lr_scheduler {
    const tt__lr_class *cls;
    tt_optimizer *optimizer; /* borrowed */
    int64_t last_epoch;
    size_t groups;                        /* how many of the optimizer's groups it sets */
    double *base_lrs, *last_lr, *next;    /* of each group: before schedulers, now, while a step is computed */
    double number[TT__LR_NUMBERS];        /* in the order of number_names */
    int64_t *milestones, milestone_count; /* rising */
    tt_lr_lambda lambda;
    void *user;
    tt_lr_scheduler **children; /* owned */
    size_t child_count;
    tt__dict dict; /* the last state dict that was asked for */
};

/* Make a scheduler over all groups that the optimizer has, before its first epoch. Notes their rates for later
 * schedulers. NULL on failure; arguments are checked here. */
tt_lr_scheduler *tt__lr_new(const tt__lr_class *cls, tt_optimizer *optimizer, const double *number);

/* Begin epoch 0; returns s. On failure s is freed. NULL gives NULL. */
tt_lr_scheduler *tt__lr_begin(tt_lr_scheduler *s);

/* Take a copy of n rising numbers. TT_ERR_INVALID, TT_ERR_MEMORY. */
tt_status tt__lr_take_milestones(tt_lr_scheduler *s, const int64_t *milestones, int64_t n);

/* Go to the next epoch, or to epoch 0, and set the rates of it. */
tt_status tt__lr_step_rates(tt_lr_scheduler *s, bool again);

/* One step of any class that needs no metric. */
tt_status tt__lr_step(tt_lr_scheduler *s, bool again);

/* Set group g's learning rate. */
void tt__lr_set(tt_lr_scheduler *s, size_t g, double lr);
double tt__lr_get(const tt_lr_scheduler *s, size_t g);

/* Copy the groups' rates to last_lr. */
void tt__lr_note(tt_lr_scheduler *s);

/* Check a number: finite and above 0 / whole and at least `least`. */
tt_status tt__lr_check_above(const char *who, const char *name, double value);
tt_status tt__lr_check_count(const char *who, const char *name, double value, int least);

#endif
