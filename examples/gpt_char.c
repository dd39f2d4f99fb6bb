/* Train a small GPT on the characters of a text, on any number of ranks, then let it write. The twin of nanoGPT's
 * train.py with config/train_shakespeare_char.py, and of its sample.py; docs/examples/gpt_char.md has them side by
 * side.
 *
 *   gpt_char                                                      some sonnets, to see it run
 *   tutti run --nproc-per-node=2 gpt_char --data input.txt        the works of Shakespeare, say
 *   gpt_char --data input.txt --resume gpt_char.safetensors       only writes, if training was over
 *
 * Shapes: B batch, T time, V vocabulary. */
static const char program_name[] = "gpt_char";
#include "sonnets.h"
#include "text_program.h"

static const char usage[] =
    "usage: gpt_char [FLAGS]\n"
    "       tutti run --nproc-per-node=N gpt_char [FLAGS]\n"
    "\n"
    "Train a GPT on the characters of a text (the last tenth is held out), then write some.\n"
    "\n"
    "  --data FILE        the text; without: four sonnets\n"
    "  --layers N         blocks (4)\n"
    "  --width N          numbers for each character, in the whole model (128)\n"
    "  --heads N          of attention; they divide the width (4)\n"
    "  --block N          characters that the model sees (128)\n"
    "  --dropout X        probability (0)\n"
    "  --steps N          train until N steps since the start of training (3500)\n"
    "  --batch-size N     texts of --block characters per rank and step; with\n"
    "                     --virtual-ranks per virtual rank (8)\n"
    "  --virtual-ranks N  train with the bits of N ranks, on fewer, too; 0 = off (0)\n"
    "  --lr X             highest learning rate of AdamW (0.002)\n"
    "  --min-lr X         lowest, at the end of half a cosine (0.0001)\n"
    "  --warmup N         steps in which it rises to the highest (100)\n"
    "  --weight-decay X   of matrices and tables (0.1)\n"
    "  --clip X           largest norm of gradients; 0 = any (1)\n"
    "  --amp bf16         mixed precision: products in bf16, weights in f32 (all in f32)\n"
    "  --eval-every N     compute the held-out loss every N steps, and at the end (500)\n"
    "  --diloco N         average parameters every N steps, by DiLoCo, instead of gradients in\n"
    "                     each; it divides --steps, --eval-every and --save-every (0: not)\n"
    "  --send-as f16      round what DiLoCo averages, or bf16 (f32)\n"
    "  --outer-lr X       of DiLoCo's outer steps (0.7)\n"
    "  --outer-momentum X of DiLoCo's outer steps (0.9)\n"
    "  --checkpoint FILE  where to save (gpt_char.safetensors)\n"
    "  --save-every N     save every N steps, and at the end; 0 = never (500)\n"
    "  --resume FILE      go on from a checkpoint, with its sampler seed\n"
    "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
    "  --device NAME      train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
    "  --sample N         characters to write at the end; 0 = none (500)\n"
    "  --temperature X    the higher the bolder; 0 = always the likeliest (0.8)\n"
    "  --top-k N          choose from the N likeliest; 0 = from all (0)\n"
    "  --prompt TEXT      what the text begins with (a new line, if the data has one)\n"
    "  --seed N           of initial weights, shuffling, dropout and writing (1337)\n"
    "  --help             this text\n";

typedef struct Options {
    TextOptions text;
    int64_t layers, width, heads;
    double dropout;
    int64_t diloco; /* steps of a rank's own; 0: average gradients */
    double outer_lr, outer_momentum;
    const char *send_as;
    char first[2]; /* what a sample begins with, without --prompt */
} Options;

static const Options defaults = {
    .text = {.checkpoint = "gpt_char.safetensors",
             .block = 128,
             .steps = 3500,
             .batch_size = 8,
             .warmup = 100,
             .eval_every = 500,
             .save_every = 500,
             .seed = 1337,
             .lr = 2e-3,
             .min_lr = 1e-4,
             .weight_decay = 0.1,
             .clip = 1,
             .sample = {.tokens = 500, .temperature = 0.8}},
    .layers = 4,
    .width = 128,
    .heads = 4,
    .outer_lr = 0.7,
    .outer_momentum = 0.9,
    .send_as = "f32",
};

/* ---- the command line ---- */

/* TT_BOOL: none. */
static tt_dtype send_type(const Options *o) {
    const tt_dtype types[] = {TT_F32, TT_F16, TT_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(o->send_as, tt_dtype_name(types[i])))
            return types[i];
    return TT_BOOL;
}

/* Evaluations and checkpoints see the model that all ranks have. */
static bool check_diloco(const Options *o) {
    const TextOptions *t = &o->text;
    bool fits =
        !o->diloco || (t->steps % o->diloco == 0 && t->eval_every % o->diloco == 0 && t->save_every % o->diloco == 0);
    if (!fits)
        return complain("--diloco divides --steps, --eval-every and --save-every", "");
    return send_type(o) < TT_BOOL || complain("--send-as: expected f32, f16 or bf16, got ", o->send_as);
}

static bool parse_options(Options *o, int argc, char **argv) {
    TextOptions *t = &o->text;
    *o = defaults;
    const Flag flags[] = {
        {"data", .text = &t->data},
        {"layers", .integer = &o->layers, .min = 1},
        {"width", .integer = &o->width, .min = 1},
        {"heads", .integer = &o->heads, .min = 1},
        {"block", .integer = &t->block, .min = 1},
        {"dropout", .real = &o->dropout},
        {"steps", .integer = &t->steps, .min = 1},
        {"batch-size", .integer = &t->batch_size, .min = 1},
        {"virtual-ranks", .integer = &t->virtual_ranks},
        {"lr", .real = &t->lr},
        {"min-lr", .real = &t->min_lr},
        {"warmup", .integer = &t->warmup},
        {"weight-decay", .real = &t->weight_decay},
        {"clip", .real = &t->clip},
        {"amp", .text = &t->amp},
        {"eval-every", .integer = &t->eval_every, .min = 1},
        {"diloco", .integer = &o->diloco},
        {"send-as", .text = &o->send_as},
        {"outer-lr", .real = &o->outer_lr},
        {"outer-momentum", .real = &o->outer_momentum},
        {"checkpoint", .text = &t->checkpoint},
        {"save-every", .integer = &t->save_every},
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
    return check_text_options(t) && check_diloco(o);
}

/* ---- setting up ---- */

static tt_status load_text(Run *r, Options *o) {
    tt_tensor *file = NULL;
    if (o->text.data && tt_bytes_read(&file, o->text.data))
        return tt_last_status();
    const char *text = file ? tt_tensor_data(file) : sonnets;
    size_t size = file ? (size_t)tt_tensor_numel(file) : sizeof sonnets - 1;
    if (size && !o->text.sample.prompt) {
        o->first[0] = memchr(text, '\n', size) ? '\n' : text[0];
        o->text.sample.prompt = o->first;
    }
    r->tokenizer = tt_char_vocab(text, size);
    tt_status status = r->tokenizer ? split_text(&r->texts, r->tokenizer, text, size, o->text.block) : tt_last_status();
    tt_tensor_free(file);
    return status;
}

/* Give the matrices and tables nanoGPT's initial weights, and biases zero. */
static tt_status draw_weights(tt_module *gpt) {
    const tt_named_tensors *all = tt_module_parameters(gpt);
    tt_status status = all ? TT_OK : tt_last_status();
    for (int64_t i = 0; all && i < all->count && !status; i++) {
        tt_tensor *x = all->tensors[i];
        const char *dot = strrchr(all->names[i], '.');
        if (tt_tensor_dim(x) == 2)
            status = tt_init_normal_(x, 0, 0.02);
        else if (dot && !strcmp(dot, ".bias"))
            status = tt_init_zeros_(x);
    }
    return status;
}

static tt_status make_model(Run *r, const Options *o) {
    tt_manual_seed((uint64_t)o->text.seed);
    r->model = tt_model_gpt(tt_tokenizer_size(r->tokenizer), o->text.block, o->width, o->layers, o->heads,
                            .dropout = o->dropout);
    return r->model ? draw_weights(r->model) : tt_last_status();
}

/* Let ranks step on their own. */
static tt_status average_seldom(Run *r, const Options *o) {
    if (!o->diloco)
        return TT_OK;
    return tt_diloco(&r->averager, r->world, tt_module_parameters(r->model), o->diloco, o->outer_lr, o->outer_momentum,
                     .send_as = send_type(o));
}

static tt_status set_up(Run *r, Options *o) {
    tt_status status = load_text(r, o);
    if (!status)
        status = check_prompt(r->tokenizer, o->text.sample.prompt);
    if (!status)
        status = make_model(r, o);
    if (!status)
        status = set_up_training(r, &o->text, 0.99);
    return status ? status : average_seldom(r, o);
}

static void introduce(const Run *r, const Options *o) {
    int64_t parameters = count_parameters(r->model);
    int world = tt_get_world_size(r->world);
    if (tt_get_rank(r->world) != 0)
        return;
    printf("%" PRId64 " different characters, %" PRId64 " parameters, %d rank%s, batches of %" PRId64 " x %" PRId64
           " a rank\n",
           tt_tokenizer_size(r->tokenizer), parameters, world, world == 1 ? "" : "s", o->text.batch_size,
           o->text.block);
    fflush(stdout);
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
        status = write_sample(&run, &options.text);
    return end_run(&run, status);
}
