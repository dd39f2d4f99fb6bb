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
                            "  --batch-size N     texts of --block tokens per rank and pass; with --virtual-ranks\n"
                            "                     per virtual rank (1)\n"
                            "  --accumulate N     passes whose gradients are averaged for one step (32)\n"
                            "  --virtual-ranks N  train with the bits of N ranks, on fewer, too; 0 = off (0)\n"
                            "  --lr X             highest learning rate of AdamW (3e-5)\n"
                            "  --min-lr X         lowest, at the end of half a cosine (as --lr: it stays)\n"
                            "  --warmup N         steps in which it rises to the highest (0)\n"
                            "  --weight-decay X   of matrices and tables (0.1)\n"
                            "  --clip X           largest norm of gradients; 0 = any (1)\n"
                            "  --amp bf16         mixed precision: products in bf16, weights in f32 (all in f32)\n"
                            "  --eval-every N     compute the held-out loss every N steps, and at the end (5)\n"
                            "  --checkpoint FILE  save what --resume needs there, every 5 evaluations\n"
                            "  --resume FILE      go on from a checkpoint, with its sampler seed\n"
                            "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
                            "  --device NAME      train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
                            "  --sample N         tokens to write at the end; 0 = none (200)\n"
                            "  --temperature X    the higher the bolder; 0 = always the likeliest (0.8)\n"
                            "  --top-k N          choose from the N likeliest; 0 = from all (200)\n"
                            "  --prompt TEXT      what the text begins with (a new line)\n"
                            "  --seed N           of shuffling, dropout and writing (1337)\n"
                            "  --help             this text\n";

typedef struct Options {
    TextOptions text;
    const char *model, *out;
} Options;

static const Options defaults = {
    .text = {.steps = 20,
             .batch_size = 1,
             .accumulate = 32,
             .eval_every = 5,
             .seed = 1337,
             .lr = 3e-5,
             .min_lr = -1,
             .weight_decay = 0.1,
             .clip = 1,
             .sample = {.tokens = 200, .temperature = 0.8, .top_k = 200, .prompt = "\n"}},
    .out = "gpt2-finetuned",
};

/* ---- the command line ---- */

static bool parse_options(Options *o, int argc, char **argv) {
    TextOptions *t = &o->text;
    *o = defaults;
    const Flag flags[] = {
        {"model", .text = &o->model},
        {"data", .text = &t->data},
        {"out", .text = &o->out},
        {"block", .integer = &t->block},
        {"steps", .integer = &t->steps, .min = 1},
        {"batch-size", .integer = &t->batch_size, .min = 1},
        {"virtual-ranks", .integer = &t->virtual_ranks},
        {"accumulate", .integer = &t->accumulate, .min = 1},
        {"lr", .real = &t->lr},
        {"min-lr", .real = &t->min_lr},
        {"warmup", .integer = &t->warmup},
        {"weight-decay", .real = &t->weight_decay},
        {"clip", .real = &t->clip},
        {"amp", .text = &t->amp},
        {"eval-every", .integer = &t->eval_every, .min = 1},
        {"checkpoint", .text = &t->checkpoint},
        {"resume", .text = &t->resume},
        {"metrics", .text = &t->metrics},
        {"device", .text = &t->device},
        {"sample", .integer = &t->sample.tokens},
        {"temperature", .real = &t->sample.temperature},
        {"top-k", .integer = &t->sample.top_k},
        {"prompt", .text = &t->sample.prompt},
        {"seed", .integer = &t->seed},
    };
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return false;
    if (!o->model || !t->data)
        return complain("expected --model DIR and --data FILE", "");
    t->save_every = t->checkpoint ? 5 * t->eval_every : 0;
    return check_text_options(t);
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

/* What a model's folder has besides the weights. */
static const char *const others[] = {"config.json", "vocab.json", "merges.txt"};
enum { OTHERS = sizeof others / sizeof *others };

static bool is_same_file(const char *a, const char *b) {
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* Copy a file from --model to --out, or only check that this can be done. Where both are one file, it stays. */
static tt_status copy_file(const Options *o, const char *name, bool only_check) {
    tt_tensor *bytes = NULL;
    char *from = join_path(o->model, name), *to = join_path(o->out, name);
    tt_status status = from && to ? TT_OK : tt_last_status();
    bool copy = !status && !is_same_file(from, to);
    if (copy && only_check)
        status = tt_checkpoint_can_save(to);
    else if (copy && !(status = tt_bytes_read(&bytes, from)))
        status = tt_bytes_write(bytes, to);
    tt_tensor_free(bytes);
    free(from);
    free(to);
    return status;
}

/* Make the folder that is written at the end, and see that its files can be, before training rather than after it. */
static tt_status prepare_out(const Options *o) {
    if (mkdir(o->out, 0777) && errno != EEXIST)
        return tt_fail(TT_ERR_IO, "can't make the folder %s: %s", o->out, strerror(errno));
    char *path = join_path(o->out, "model.safetensors");
    tt_status status = path ? tt_checkpoint_can_save(path) : tt_last_status();
    free(path);
    for (int i = 0; i < OTHERS && !status; i++)
        status = copy_file(o, others[i], true);
    return status;
}

/* Save the weights under the names of transformers' save_pretrained(), which leaves out a head that is the table of
 * tokens again, and what else makes the folder a model. */
static tt_status save_model(tt_module *gpt2, const Options *o) {
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
    for (int i = 0; i < OTHERS && !status; i++)
        status = copy_file(o, others[i], false);
    free(names);
    free(tensors);
    free(path);
    return status;
}

/* ---- setting up ---- */

static tt_status load_tokenizer(Run *r, const Options *o) {
    char *vocab = join_path(o->model, "vocab.json"), *merges = join_path(o->model, "merges.txt");
    r->tokenizer = vocab && merges ? tt_gpt2_tokenizer(vocab, merges) : NULL;
    free(vocab);
    free(merges);
    return r->tokenizer ? TT_OK : tt_last_status();
}

/* How many rows one of the model's tables has. */
static int64_t count_rows(tt_module *gpt2, const char *name) {
    return tt_tensor_size(tt_named_tensors_find(tt_module_parameters(gpt2), name), 0);
}

static tt_status load_model(Run *r, Options *o) {
    r->model = tt_model_gpt2_from_pretrained(o->model);
    if (!r->model)
        return tt_last_status();
    int64_t words = count_rows(r->model, "transformer.wte.weight");
    int64_t positions = count_rows(r->model, "transformer.wpe.weight");
    if (tt_tokenizer_size(r->tokenizer) > words)
        return tt_fail(TT_ERR_INVALID, "%s: vocab.json has %" PRId64 " tokens, but the model knows only %" PRId64,
                       o->model, tt_tokenizer_size(r->tokenizer), words);
    if (o->text.block > positions)
        return tt_fail(TT_ERR_INVALID,
                       "--block: expected at most the %" PRId64 " tokens that the model in %s can see, "
                       "got %" PRId64,
                       positions, o->model, o->text.block);
    if (!o->text.block)
        o->text.block = positions;
    return TT_OK;
}

static tt_status load_text(Run *r, const Options *o) {
    tt_tensor *file = NULL;
    tt_status status = tt_bytes_read(&file, o->text.data);
    if (!status)
        status =
            split_text(&r->texts, r->tokenizer, tt_tensor_data(file), (size_t)tt_tensor_numel(file), o->text.block);
    tt_tensor_free(file);
    return status;
}

static tt_status set_up(Run *r, Options *o) {
    tt_status status = load_tokenizer(r, o);
    if (!status)
        status = check_prompt(r->tokenizer, o->text.sample.prompt);
    if (!status)
        status = load_model(r, o);
    if (!status)
        status = load_text(r, o);
    if (!status && tt_get_rank(r->world) == 0)
        status = prepare_out(o);
    return status ? status : set_up_training(r, &o->text, 0.95);
}

static void introduce(const Run *r, const Options *o) {
    int world = tt_get_world_size(r->world);
    if (tt_get_rank(r->world) != 0)
        return;
    printf("%" PRId64 " parameters, %d rank%s, %" PRId64 " x %" PRId64 " x %" PRId64 " tokens a rank and step\n",
           count_parameters(r->model), world, world == 1 ? "" : "s", o->text.accumulate, o->text.batch_size,
           o->text.block);
    fflush(stdout);
}

/* What becomes of the trained model: rank 0 saves it and lets it write. */
static tt_status finish(const Run *r, const Options *o) {
    if (tt_get_rank(r->world) != 0)
        return TT_OK;
    if (save_model(r->model, o))
        return tt_last_status();
    printf("saved in %s\n", o->out);
    return write_sample(r, &o->text);
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
        status = train(&run, &options.text);
    }
    if (!status && run.result.reason != TT_TRAINER_SIGNAL)
        status = finish(&run, &options);
    return end_run(&run, status);
}
