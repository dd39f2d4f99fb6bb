/* What the programs that train on text share: their text, an optimizer and a schedule as in nanoGPT, what they print,
 * the text that they write at the end, and the run that is made of these. */
#ifndef EXAMPLES_TEXT_PROGRAM_H
#define EXAMPLES_TEXT_PROGRAM_H

#include <math.h>
#include <time.h>
#include <tutti/tutti.h>

#include "flags.h"
#include "job.h"
#include "training.h"

/* ---- the command line ---- */

/* How to go on with a text. */
typedef struct Sample {
    int64_t tokens; /* 0: not at all */
    double temperature;
    int64_t top_k;
    const char *prompt;
} Sample;

/* What all these programs are told. */
typedef struct TextOptions {
    const char *data, *checkpoint, *resume, *metrics;
    const char *amp;    /* "bf16": mixed precision; NULL: all in f32 */
    const char *device; /* NULL: the cpu */
    int64_t block, steps, batch_size, virtual_ranks, accumulate, warmup, eval_every, save_every, seed;
    double lr, weight_decay, clip;
    double min_lr; /* below 0: as lr */
    Sample sample;
} TextOptions;

static bool check_text_options(const TextOptions *o) {
    if (o->amp && strcmp(o->amp, "bf16") != 0)
        return complain("--amp: expected bf16, got ", o->amp);
    return o->min_lr <= o->lr || complain("--min-lr is above --lr", "");
}

/* ---- data ---- */

/* Windows of the text to train on, which begin at each token, and of the held-out text behind it, in which each token
 * is predicted once; and this rank's share of both. */
typedef struct Texts {
    tt_dataset *train, *test;
    tt_sampler *sampler, *test_sampler;
    tt_loader *loader, *test_loader;
    uint64_t seed; /* of shuffling */
} Texts;

/* So many held-out tokens, or one window, are predicted at a time. */
enum { TEST_TOKENS = 4096 };

/* Cut a text into tokens, of which the last tenth is held out. */
static tt_status split_text(Texts *d, const tt_tokenizer *tokenizer, const char *text, size_t size, int64_t block) {
    size_t train_size = size / 10 * 9;
    while (train_size > 0 && ((unsigned char)text[train_size] & 0xc0) == 0x80) /* inside a character of UTF-8 */
        train_size--;
    tt_tensor *train = NULL, *test = NULL;
    tt_status status = tt_tokenizer_encode(&train, tokenizer, text, train_size);
    if (!status)
        status = tt_tokenizer_encode(&test, tokenizer, text + train_size, size - train_size);
    if (!status && (tt_tensor_numel(train) <= block || tt_tensor_numel(test) <= block)) {
        status = tt_fail(TT_ERR_INVALID,
                         "expected a text of more than %" PRId64 " tokens to train on and as many held out (a tenth of "
                         "it), got %" PRId64 " and %" PRId64 ": use a longer text or a smaller --block",
                         block, tt_tensor_numel(train), tt_tensor_numel(test));
        tt_tensor_free(train);
        tt_tensor_free(test);
        return status;
    }
    d->train = tt_window_dataset(train, block, .stride = 1);
    d->test = tt_window_dataset(test, block);
    return status ? status : d->train && d->test ? TT_OK : tt_last_status();
}

/* Make this rank's loaders. */
static tt_status share_texts(Texts *d, tt_group *world, const TextOptions *o) {
    int ranks = tt_get_world_size(world), rank = tt_get_rank(world);
    if (shuffling_seed(&d->seed, o->seed, o->resume))
        return tt_last_status();
    d->sampler = tt_distributed_sampler(tt_dataset_size(d->train), ranks, rank, .seed = d->seed,
                                        .virtual_ranks = (int)o->virtual_ranks);
    d->loader = tt_loader_new(d->train, o->batch_size, d->sampler);
    if (!d->loader)
        return tt_last_status();
    int64_t block = tt_dataset_x(d->test).shape.dim[0];
    d->test_sampler = tt_distributed_sampler(tt_dataset_size(d->test), ranks, rank, .exact = true, .no_shuffle = true,
                                             .virtual_ranks = (int)o->virtual_ranks);
    d->test_loader = tt_loader_new(d->test, block < TEST_TOKENS ? TEST_TOKENS / block : 1, d->test_sampler);
    return d->test_loader ? TT_OK : tt_last_status();
}

static void free_texts(Texts *d) {
    tt_loader_free(d->test_loader);
    tt_sampler_free(d->test_sampler);
    tt_loader_free(d->loader);
    tt_sampler_free(d->sampler);
    tt_dataset_free(d->train);
    tt_dataset_free(d->test);
}

/* ---- the optimizer ---- */

/* AdamW that shrinks matrices and tables, and no biases and scales of layer norms. */
static tt_optimizer *text_adamw(tt_module *model, double lr, double weight_decay, double beta2) {
    const tt_named_tensors *all = tt_module_parameters(model);
    size_t n = all ? (size_t)all->count : 0;
    const char **names = malloc((2 * n + 1) * sizeof *names);
    tt_tensor **tensors = malloc((2 * n + 1) * sizeof *tensors);
    int64_t count[2] = {0, 0}; /* of matrices, which come first, and of the others */
    for (size_t i = 0; names && tensors && i < n; i++) {
        size_t kind = tt_tensor_dim(all->tensors[i]) < 2, place = kind * n + (size_t)count[kind]++;
        names[place] = all->names[i];
        tensors[place] = all->tensors[i];
    }
    tt_optimizer *adamw = NULL;
    if (all && names && tensors)
        adamw = tt_adamw(TT_NAMED_TENSORS(count[0], names, tensors), lr, weight_decay, .beta2 = beta2);
    if (adamw && tt_optimizer_add_param_group(adamw, TT_NAMED_TENSORS(count[1], names + n, tensors + n),
                                              .options = TT_OPTION_LIST({"weight_decay", 0}))) {
        tt_optimizer_free(adamw);
        adamw = NULL;
    }
    free(names);
    free(tensors);
    return adamw;
}

/* ---- the learning rate ---- */

/* It rises in a straight line for `warmup` steps, then falls along half a cosine to `lowest` of its peak. */
typedef struct Schedule {
    int64_t warmup, steps;
    double lowest;
} Schedule;

/* A tt_lr_lambda. */
static double schedule_factor(int64_t step, int64_t group, void *schedule) {
    const Schedule *s = schedule;
    (void)group;
    if (step < s->warmup)
        return (double)(step + 1) / (double)(s->warmup + 1);
    if (step >= s->steps)
        return s->lowest;
    double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return s->lowest + (1 - s->lowest) * 0.5 * (1 + cos(3.141592653589793 * done));
}

/* ---- what is printed ---- */

static int64_t count_parameters(tt_module *model) {
    int64_t count = 0;
    const tt_named_tensors *all = tt_module_parameters(model);
    for (int64_t i = 0; all && i < all->count; i++)
        count += tt_tensor_numel(all->tensors[i]);
    return count;
}

static double seconds_now(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct Screen {
    FILE *out;
    double began;
} Screen;

/* A display: losses (rank 0's last batch, all held-out text) and time of each evaluation; the rest as the trainer's own
 * does. */
static void show_progress(const tt_trainer_report *r, void *screen) {
    const Screen *s = screen;
    if (r->event != TT_TRAINER_EVALUATED && r->event != TT_TRAINER_EPOCH) {
        tt_trainer_console(r, s->out);
        return;
    }
    fprintf(s->out, "step %" PRId64 ": batch loss %.4f", r->step, r->loss);
    if (r->eval_count)
        fprintf(s->out, ", val loss %.4f", r->eval[0].value);
    fprintf(s->out, ", %.0f s\n", seconds_now() - s->began);
    fflush(s->out);
}

/* ---- the sample ---- */

/* Can the prompt be cut into tokens? Asked before training rather than after it. */
static tt_status check_prompt(const tt_tokenizer *tokenizer, const char *prompt) {
    tt_tensor *tokens = NULL;
    tt_status status = tt_tokenizer_encode(&tokens, tokenizer, prompt, strlen(prompt));
    int64_t count = tokens ? tt_tensor_numel(tokens) : 0;
    tt_tensor_free(tokens);
    if (status)
        return tt_fail(status, "--prompt: %s", tt_last_error());
    return count ? TT_OK : tt_fail(TT_ERR_INVALID, "--prompt: expected one character at least");
}

/* A tt_token_callback: write a token's bytes as soon as it is made. */
static bool write_token(int64_t token, void *tokenizer) {
    char bytes[256];
    size_t length = 0;
    if (tt_tokenizer_decode(&length, tokenizer, &token, 1, bytes, sizeof bytes))
        return false;
    fwrite(bytes, 1, length < sizeof bytes ? length : sizeof bytes, stdout);
    fflush(stdout);
    return true;
}

/* ---- the run ---- */

typedef struct Run {
    tt_group *world;
    Screen screen;
    tt_tokenizer *tokenizer;
    Texts texts;
    const tt_device *device;
    tt_module *model;
    tt_optimizer *adamw;
    tt_model_averager *averager; /* what ranks average instead of gradients; NULL: gradients */
    Schedule schedule;
    tt_lr_scheduler *scheduler;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
    tt_trainer_result result;
} Run;

/* The step of training and of testing: tokens (B,T), what follows each of them (B,T), logits (B,T,V) */
static tt_tensor *text_step(tt_trainer *t, const tt_batch *b, void *user) {
    const Run *r = user;
    tt_tensor *logits = tt_module_forward(tt_trainer_model(t), tt_to_device(b->x, r->device));
    return tt_cross_entropy(tt_reshape(logits, TT_SHAPE(-1, tt_tensor_size(logits, 2))),
                            tt_reshape(tt_to_device(b->y, r->device), TT_SHAPE(-1)));
}

/* Make what trains the model on the texts, which are there. */
static tt_status set_up_training(Run *r, const TextOptions *o, double beta2) {
    double lowest = o->min_lr >= 0 && o->lr > 0 ? o->min_lr / o->lr : 1;
    r->device = find_device(o->device ? o->device : "cpu");
    if (!r->device || tt_module_to_device(r->model, r->device))
        return tt_last_status();
    r->adamw = text_adamw(r->model, o->lr, o->weight_decay, beta2);
    r->schedule = (Schedule){o->warmup, o->steps, lowest};
    r->scheduler = tt_lambda_lr(r->adamw, schedule_factor, &r->schedule);
    if (!r->scheduler || share_texts(&r->texts, r->world, o))
        return tt_last_status();
    if (o->metrics && tt_get_rank(r->world) == 0 && !(r->metrics = tt_summary_writer_new(o->metrics)))
        return tt_last_status();
    return TT_OK;
}

static tt_status train(Run *r, const TextOptions *o) {
    return tt_trainer_run(
        r->model, r->adamw, r->texts.loader, text_step, .user = r, .group = r->world, .sampler = r->texts.sampler,
        .max_steps = o->steps, .accumulate = o->accumulate, .virtual_ranks = (int)o->virtual_ranks,
        .clip_norm = o->clip, .autocast = o->amp ? TT_BF16 : TT_F32, .scheduler = r->scheduler,
        .scheduler_when = TT_TRAINER_EACH_STEP, .eval_loader = r->texts.test_loader, .eval_every_steps = o->eval_every,
        .step_seed = r->texts.seed + 1, .checkpoint = o->save_every ? o->checkpoint : NULL,
        .save_every_steps = o->save_every, .resume = o->resume, .stop_on_signals = true, .metrics = r->metrics,
        .display = show_progress, .display_user = &r->screen, .result = &r->result, .averager = r->averager);
}

/* Let the model go on with the prompt, and write both. On rank 0: the others have the same model. */
static tt_status write_sample(const Run *r, const TextOptions *o) {
    const Sample *s = &o->sample;
    if (tt_get_rank(r->world) != 0 || !s->tokens)
        return TT_OK;
    tt_tensor *prompt = NULL;
    int64_t *made = malloc((size_t)s->tokens * sizeof *made);
    if (!made)
        return tt_fail(TT_ERR_MEMORY, "no memory for %" PRId64 " tokens", s->tokens);
    tt_manual_seed((uint64_t)o->seed);
    tt_status status = tt_tokenizer_encode(&prompt, r->tokenizer, s->prompt, strlen(s->prompt));
    printf("--- sample\n%s", s->prompt);
    if (!status)
        status = tt_model_generate(made, NULL, r->model, tt_tensor_i64(prompt), tt_tensor_numel(prompt), s->tokens,
                                   .temperature = s->temperature, .top_k = s->top_k, .sliding_window = true,
                                   .on_token = write_token, .user = r->tokenizer);
    printf("\n");
    tt_tensor_free(prompt);
    free(made);
    return status;
}

/* What main() returns after `status`. */
static int end_run(Run *r, tt_status status) {
    if (!status)
        status = flush_output();
    if (status)
        tt_report();
    tt_summary_writer_free(r->metrics);
    free_texts(&r->texts);
    tt_lr_scheduler_free(r->scheduler);
    tt_model_averager_free(r->averager);
    tt_optimizer_free(r->adamw);
    tt_module_free(r->model);
    tt_tokenizer_free(r->tokenizer);
    tt_destroy_process_group(r->world);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
