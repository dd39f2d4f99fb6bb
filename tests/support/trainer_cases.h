/* What the trainer's tests share: a small net that learns to tell three classes, and the loop that a program would
 * write by hand instead. */
#ifndef TESTS_SUPPORT_TRAINER_CASES_H
#define TESTS_SUPPORT_TRAINER_CASES_H

#include <stdlib.h>
#include <string.h>
#include <tutti/trainer.h>

enum { CASE_EXAMPLES = 37, CASE_SEED = 3 };

/* Everything that one run needs. Zeroed = nothing made. */
typedef struct trainer_case {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_lr_scheduler *scheduler;
    tt_dataset *data, *test;
    tt_sampler *sampler;
    tt_loader *loader, *eval_loader;
} trainer_case;

/* n examples: x (n,6), y (n), drawn from `seed`. */
static inline tt_dataset *case_data(int64_t n, uint64_t seed) {
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new(seed);
    if (!g)
        return NULL;
    tt_tensor *x = tt_randn(TT_SHAPE(n, 6), g), *y = tt_argmax(tt_narrow(x, 1, 0, 3), 1);
    tt_generator_free(g);
    return y ? tt_tensor_dataset(tt_keep(x), tt_keep(y)) : NULL; /* not without y: that is a set without targets */
}

static inline tt_status case_make(trainer_case *c, int rank, int world, int64_t batch_size) {
    tt_manual_seed(7);
    *c = (trainer_case){0};
    c->model = tt_nn_sequential(tt_nn_linear(6, 8), tt_nn_relu(), tt_nn_dropout(0.3), tt_nn_linear(8, 3));
    c->optimizer = c->model ? tt_sgd(tt_module_parameters(c->model), 0.1, .momentum = 0.9) : NULL;
    c->scheduler = c->optimizer ? tt_step_lr(c->optimizer, 1, .gamma = 0.9) : NULL;
    c->data = case_data(CASE_EXAMPLES, 1);
    c->test = case_data(11 + rank, 2);
    c->sampler = tt_distributed_sampler(CASE_EXAMPLES, world, rank, .seed = CASE_SEED);
    c->loader = c->data && c->sampler ? tt_loader_new(c->data, batch_size, c->sampler) : NULL;
    c->eval_loader = c->test ? tt_loader_new(c->test, 4, tt_in_order()) : NULL;
    return c->scheduler && c->loader && c->eval_loader ? TT_OK : tt_last_status();
}

static inline void case_free(trainer_case *c) {
    tt_loader_free(c->eval_loader);
    tt_loader_free(c->loader);
    tt_sampler_free(c->sampler);
    tt_dataset_free(c->test);
    tt_dataset_free(c->data);
    tt_lr_scheduler_free(c->scheduler);
    tt_optimizer_free(c->optimizer);
    tt_module_free(c->model);
}

/* tt_trainer_step_fn */
static inline tt_tensor *case_step(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    tt_tensor *y = tt_module_forward(tt_trainer_model(t), b->x), *guess = tt_argmax(y, 1);
    if (!guess)
        return NULL;
    int64_t correct = 0;
    for (int64_t i = 0; i < b->size; i++)
        correct += tt_tensor_i64(guess)[i] == tt_tensor_i64(b->y)[i];
    if (tt_trainer_add_metric(t, "accuracy", (double)correct / (double)b->size, b->size))
        return NULL;
    return tt_cross_entropy(y, b->y);
}

/* The loop by hand: `accumulate` batches a step, gradients clipped to a norm of 0.5, the rate stepped each epoch. Each
 * step draws from the generator that case_step_seed() seeds. A wrapper averages gradients once a step. */
static inline void case_step_seed(uint64_t seed, int64_t step, int rank, int world) {
    uint64_t number = (uint64_t)step * (uint64_t)world + (uint64_t)rank;
    tt_manual_seed(seed + number * 0x9e3779b97f4a7c15u);
}

static inline tt_status case_train_by_hand(trainer_case *c, tt_module *wrapped, int rank, int world, int64_t epochs,
                                           int64_t accumulate, uint64_t seed) {
    int64_t step = 0, batches = tt_loader_batches(c->loader);
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        tt_batch b;
        tt_sampler_set_epoch(c->sampler, epoch);
        for (int64_t at = 0; tt_loader_next(c->loader, &b) > 0; at++) {
            TT_AUTO_SCOPE;
            int64_t first = at / accumulate * accumulate;
            int64_t parts = batches - first < accumulate ? batches - first : accumulate;
            if (at == first) {
                tt_optimizer_zero_grad(c->optimizer);
                case_step_seed(seed, step, rank, world);
            }
            if (tt_ddp_reducer(wrapped) && tt_ddp_set_sync(wrapped, at + 1 == first + parts))
                return tt_last_status();
            tt_tensor *loss = tt_cross_entropy(tt_module_forward(wrapped, b.x), b.y);
            if (tt_backward(parts == 1 ? loss : tt_scale(loss, 1 / (double)parts)))
                return tt_last_status();
            if (at + 1 < first + parts)
                continue;
            step++;
            if (tt_clip_grad_norm_(tt_module_parameters(c->model), 0.5) || tt_optimizer_step(c->optimizer))
                return tt_last_status();
        }
        if (tt_lr_scheduler_step(c->scheduler))
            return tt_last_status();
    }
    return TT_OK;
}

/* Have both models and optimizers the same bits? */
static inline bool case_lists_equal(const tt_named_tensors *a, const tt_named_tensors *b) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->count != b->count || strcmp(a->names[i], b->names[i]) || !tt_equal(a->tensors[i], b->tensors[i]))
            return false;
    return true;
}

static inline bool case_equal(const trainer_case *a, const trainer_case *b) {
    return case_lists_equal(tt_module_state_dict(a->model), tt_module_state_dict(b->model)) &&
           case_lists_equal(tt_optimizer_state_dict(a->optimizer), tt_optimizer_state_dict(b->optimizer));
}

#endif
