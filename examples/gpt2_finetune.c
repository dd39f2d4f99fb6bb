/* Train a published GPT-2 further on a text, on any number of ranks, save it as it was published, then let it write.
 * The twin of nanoGPT's train.py with config/finetune_shakespeare.py; docs/examples/gpt2_finetune.md has them side by
 * side.
 *
 *   gpt2_finetune --model gpt2 --data input.txt
 *   tutti run --nproc-per-node=2 gpt2_finetune --model gpt2 --data input.txt --accumulate 16
 *   gpt2_finetune --model gpt2-finetuned --data input.txt --steps 20      from what it wrote
 *
 * A model is a folder with config.json, model.safetensors, vocab.json and merges.txt, such as a clone of
 * huggingface.co/gpt2. Shapes: B batch, T time, V vocabulary. */
static const char program_name[] = "gpt2_finetune";
#include <errno.h>
#include <sys/stat.h>

#include "text_program.h"

static const char usage[] = "usage: gpt2_finetune --model DIR --data FILE [FLAGS]\n"
                            "       tutti run --nproc-per-node=N gpt2_finetune --model DIR --data FILE [FLAGS]\n"
                            "\n"
                            "Train a GPT-2 further on a text (the last tenth is held out), save it, write some.\n"
                            "\n"
                            "  --model DIR        config.json, model.safetensors, vocab.json, merges.txt\n"
                            "  --data FILE        the text\n"
                            "  --out DIR          where the same four files are written (gpt2-finetuned)\n"
                            "  --block N          tokens of a text; 0 = as many as the model can see (0)\n"
                            "  --steps N          train until N steps since the start of training (20)\n"
                            "  --batch-size N     texts of --block tokens per rank and pass (1)\n"
                            "  --accumulate N     passes whose gradients are averaged for one step (32)\n"
                            "  --lr X             highest learning rate of AdamW (3e-5)\n"
                            "  --min-lr X         lowest, at the end of half a cosine (as --lr: it stays)\n"
                            "  --warmup N         steps in which it rises to the highest (0)\n"
                            "  --weight-decay X   of matrices and tables (0.1)\n"
                            "  --clip X           largest norm of gradients; 0 = any (1)\n"
                            "  --eval-every N     compute the held-out loss every N steps, and at the end (5)\n"
                            "  --checkpoint FILE  save what --resume needs there, every 5 evaluations\n"
                            "  --resume FILE      go on from a checkpoint, with its sampler seed\n"
                            "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
                            "  --sample N         tokens to write at the end; 0 = none (200)\n"
                            "  --temperature X    the higher the bolder; 0 = always the likeliest (0.8)\n"
                            "  --top-k N          choose from the N likeliest; 0 = from all (200)\n"
                            "  --prompt TEXT      what the text begins with (a new line)\n"
                            "  --seed N           of shuffling, dropout and writing (1337)\n"
                            "  --help             this text\n";

typedef struct Options {
    const char *model, *data, *out, *checkpoint, *resume, *metrics;
    int64_t block, steps, batch_size, accumulate, warmup, eval_every, seed;
    double lr, min_lr, weight_decay, clip;
    Sample sample;
} Options;

static const Options defaults = {
    .out = "gpt2-finetuned",
    .steps = 20,
    .batch_size = 1,
    .accumulate = 32,
    .eval_every = 5,
    .seed = 1337,
    .lr = 3e-5,
    .min_lr = -1, /* as lr */
    .weight_decay = 0.1,
    .clip = 1,
    .sample = {.tokens = 200, .temperature = 0.8, .top_k = 200, .prompt = "\n"},
};

typedef struct Run {
    tt_group *world;
    Screen screen;
    tt_tokenizer *bpe;
    Texts texts;
    tt_module *gpt2;
    tt_optimizer *adamw;
    Schedule schedule;
    tt_lr_scheduler *scheduler;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
} Run;

/* ---- the command line ---- */

static bool parse_options(Options *o, int argc, char **argv) {
    *o = defaults;
    const Flag flags[] = {
        {"model", .text = &o->model},
        {"data", .text = &o->data},
        {"out", .text = &o->out},
        {"block", .integer = &o->block},
        {"steps", .integer = &o->steps, .min = 1},
        {"batch-size", .integer = &o->batch_size, .min = 1},
        {"accumulate", .integer = &o->accumulate, .min = 1},
        {"lr", .real = &o->lr},
        {"min-lr", .real = &o->min_lr},
        {"warmup", .integer = &o->warmup},
        {"weight-decay", .real = &o->weight_decay},
        {"clip", .real = &o->clip},
        {"eval-every", .integer = &o->eval_every, .min = 1},
        {"checkpoint", .text = &o->checkpoint},
        {"resume", .text = &o->resume},
        {"metrics", .text = &o->metrics},
        {"sample", .integer = &o->sample.tokens},
        {"temperature", .real = &o->sample.temperature},
        {"top-k", .integer = &o->sample.top_k},
        {"prompt", .text = &o->sample.prompt},
        {"seed", .integer = &o->seed},
    };
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return false;
    if (!o->model || !o->data)
        return complain("expected --model DIR and --data FILE", "");
    return o->min_lr <= o->lr || complain("--min-lr is above --lr", "");
}

/* ---- files ---- */

/* DIR/NAME, to be freed; NULL after a failure. */
static char *join_path(const char *dir, const char *name) {
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", dir, name);
    else
        tt_ignore(tt_fail(TT_ERR_MEMORY, "no memory for a path"));
    return path;
}

static tt_status write_file(const char *path, const tt_tensor *bytes) {
    FILE *file = fopen(path, "wb");
    if (!file)
        return tt_fail(TT_ERR_IO, "can't write %s: %s", path, strerror(errno));
    size_t size = (size_t)tt_tensor_numel(bytes);
    bool whole = fwrite(tt_tensor_data(bytes), 1, size, file) == size;
    if (fclose(file) || !whole)
        return tt_fail(TT_ERR_IO, "can't write %s: %s", path, strerror(errno));
    return TT_OK;
}

static tt_status copy_file(const char *from_dir, const char *to_dir, const char *name) {
    tt_tensor *bytes = NULL;
    char *from = join_path(from_dir, name), *to = join_path(to_dir, name);
    tt_status status = from && to ? tt_bytes_read(&bytes, from) : tt_last_status();
    if (!status)
        status = write_file(to, bytes);
    tt_tensor_free(bytes);
    free(from);
    free(to);
    return status;
}

/* Make the folder that is written at the end, before training rather than after it. */
static tt_status prepare_out(const char *out) {
    if (mkdir(out, 0777) && errno != EEXIST)
        return tt_fail(TT_ERR_IO, "can't make the folder %s: %s", out, strerror(errno));
    char *path = join_path(out, "model.safetensors");
    tt_status status = path ? tt_checkpoint_can_save(path) : tt_last_status();
    free(path);
    return status;
}

/* Save the weights under the names of transformers' save_pretrained(), which leaves out a head that is the table of
 * tokens again, and what else makes the folder a model. */
static tt_status save_model(tt_module *gpt2, const Options *o) {
    static const char *const others[] = {"config.json", "vocab.json", "merges.txt"};
    const tt_named_tensors *state = tt_module_state_dict(gpt2);
    tt_tensor *head = tt_named_tensors_find(state, "lm_head.weight");
    bool tied = head && head == tt_named_tensors_find(state, "transformer.wte.weight");
    char *path = join_path(o->out, "model.safetensors");
    const char **names = state ? malloc((size_t)state->count * sizeof *names) : NULL;
    tt_tensor **tensors = state ? malloc((size_t)state->count * sizeof *tensors) : NULL;
    tt_status status = !state || !path      ? tt_last_status()
                       : !names || !tensors ? tt_fail(TT_ERR_MEMORY, "no memory for a list of weights")
                                            : TT_OK;
    int64_t n = 0;
    for (int64_t i = 0; !status && i < state->count; i++)
        if (!tied || strcmp(state->names[i], "lm_head.weight") != 0) {
            names[n] = state->names[i];
            tensors[n++] = state->tensors[i];
        }
    if (!status)
        status = tt_safetensors_save(path, TT_NAMED_TENSORS(n, names, tensors), NULL, 0);
    for (size_t i = 0; !status && i < sizeof others / sizeof *others; i++)
        status = copy_file(o->model, o->out, others[i]);
    free(names);
    free(tensors);
    free(path);
    return status;
}

/* ---- setting up ---- */

static tt_status load_tokenizer(Run *r, const Options *o) {
    char *vocab = join_path(o->model, "vocab.json"), *merges = join_path(o->model, "merges.txt");
    r->bpe = vocab && merges ? tt_gpt2_tokenizer(vocab, merges) : NULL;
    free(vocab);
    free(merges);
    return r->bpe ? TT_OK : tt_last_status();
}

/* How many rows one of the model's tables has. */
static int64_t count_rows(tt_module *gpt2, const char *name) {
    return tt_tensor_size(tt_named_tensors_find(tt_module_parameters(gpt2), name), 0);
}

static tt_status load_model(Run *r, Options *o) {
    r->gpt2 = tt_model_gpt2_from_pretrained(o->model);
    if (!r->gpt2)
        return tt_last_status();
    int64_t words = count_rows(r->gpt2, "transformer.wte.weight");
    int64_t positions = count_rows(r->gpt2, "transformer.wpe.weight");
    if (tt_tokenizer_size(r->bpe) > words)
        return tt_fail(TT_ERR_INVALID, "%s: vocab.json has %" PRId64 " tokens, but the model knows only %" PRId64,
                       o->model, tt_tokenizer_size(r->bpe), words);
    if (o->block > positions)
        return tt_fail(TT_ERR_INVALID,
                       "--block: expected at most the %" PRId64 " tokens that the model in %s can see, "
                       "got %" PRId64,
                       positions, o->model, o->block);
    if (!o->block)
        o->block = positions;
    return TT_OK;
}

static tt_status load_text(Run *r, const Options *o) {
    tt_tensor *file = NULL;
    tt_status status = tt_bytes_read(&file, o->data);
    if (!status)
        status = split_text(&r->texts, r->bpe, tt_tensor_data(file), (size_t)tt_tensor_numel(file), o->block);
    tt_tensor_free(file);
    return status;
}

static tt_status set_up_optimizer(Run *r, const Options *o) {
    r->adamw = text_adamw(r->gpt2, o->lr, o->weight_decay, 0.95);
    r->schedule = (Schedule){o->warmup, o->steps, o->min_lr >= 0 && o->lr > 0 ? o->min_lr / o->lr : 1};
    r->scheduler = tt_lambda_lr(r->adamw, schedule_factor, &r->schedule);
    return r->scheduler ? TT_OK : tt_last_status();
}

static tt_status set_up(Run *r, Options *o) {
    bool first = tt_get_rank(r->world) == 0;
    tt_status status = load_tokenizer(r, o);
    if (!status)
        status = check_prompt(r->bpe, o->sample.prompt);
    if (!status)
        status = load_model(r, o);
    if (!status)
        status = load_text(r, o);
    if (!status && first)
        status = prepare_out(o->out);
    if (!status)
        status = set_up_optimizer(r, o);
    if (!status)
        status = share_texts(&r->texts, r->world, o->batch_size, (uint64_t)o->seed, o->resume);
    if (!status && first && o->metrics && !(r->metrics = tt_summary_writer_new(o->metrics)))
        status = tt_last_status();
    return status;
}

static void introduce(const Run *r, const Options *o) {
    int world = tt_get_world_size(r->world);
    if (tt_get_rank(r->world) != 0)
        return;
    printf("%" PRId64 " parameters, %d rank%s, %" PRId64 " x %" PRId64 " x %" PRId64 " tokens a rank and step\n",
           count_parameters(r->gpt2), world, world == 1 ? "" : "s", o->accumulate, o->batch_size, o->block);
    fflush(stdout);
}

/* ---- the run ---- */

static tt_status train(Run *r, const Options *o) {
    return tt_trainer_run(
        r->gpt2, r->adamw, r->texts.loader, text_step, .group = r->world, .sampler = r->texts.sampler,
        .max_steps = o->steps, .accumulate = o->accumulate, .clip_norm = o->clip, .scheduler = r->scheduler,
        .scheduler_when = TT_TRAINER_EACH_STEP, .eval_loader = r->texts.test_loader, .eval_every_steps = o->eval_every,
        .step_seed = r->texts.seed + 1, .checkpoint = o->checkpoint,
        .save_every_steps = o->checkpoint ? 5 * o->eval_every : 0, .resume = o->resume, .stop_on_signals = true,
        .metrics = r->metrics, .display = show_progress, .display_user = &r->screen);
}

/* What rank 0 does with the trained model. */
static tt_status finish(const Run *r, const Options *o) {
    if (tt_get_rank(r->world) != 0)
        return TT_OK;
    if (save_model(r->gpt2, o))
        return tt_last_status();
    printf("saved in %s\n", o->out);
    tt_manual_seed((uint64_t)o->seed);
    return o->sample.tokens ? write_sample(r->gpt2, r->bpe, &o->sample) : TT_OK;
}

static void tear_down(Run *r) {
    tt_summary_writer_free(r->metrics);
    free_texts(&r->texts);
    tt_lr_scheduler_free(r->scheduler);
    tt_optimizer_free(r->adamw);
    tt_module_free(r->gpt2);
    tt_tokenizer_free(r->bpe);
    tt_destroy_process_group(r->world);
}

int main(int argc, char **argv) {
    Options options;
    Run run = {.screen = {stdout, seconds_now()}};
    if (!parse_options(&options, argc, argv))
        return 2;
    tt_status status = join_job(&run.world);
    if (!status)
        status = set_up(&run, &options);
    if (!status) {
        introduce(&run, &options);
        status = train(&run, &options);
    }
    if (!status)
        status = finish(&run, &options);
    if (status)
        tt_report();
    tear_down(&run);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
