/* Train an LSTM on a text, character by character, and let it write. The twin of PyTorch's
 * examples/word_language_model, main.py and generate.py; docs/examples/lstm_text.md has them side by side.
 *
 *   lstm_text                                                  four sonnets, to try the program
 *   lstm_text --data input.txt --metrics runs/first            a text of one's own
 *   tutti run --nproc-per-node=2 lstm_text --data input.txt --batch-size 10
 *   lstm_text --data input.txt --resume lstm_text.safetensors --epochs 1 --write 2000
 *
 * The text is cut into columns that are read side by side, a window of each in a batch. An LSTM's state goes on from
 * window to window, its gradient does not: truncated backpropagation through time.
 *
 * Shapes: B columns, T characters of a window, V characters of the vocabulary, L layers, H hidden units. */
#include "flags.h"
#include "job.h"
#include "sonnets.h"

#include <math.h>

static const char program_name[] = "lstm_text";

static const char usage[] =
    "usage: lstm_text [FLAGS]\n"
    "       tutti run --nproc-per-node=N lstm_text [FLAGS]\n"
    "\n"
    "Train an LSTM to tell a text's next character, on one rank or many, and write a text with it.\n"
    "\n"
    "  --data FILE        the text, of which the last tenth is held out; without: four sonnets\n"
    "  --emsize N         size of a character's embedding (200)\n"
    "  --nhid N           hidden units of a layer (200)\n"
    "  --nlayers N        layers (2)\n"
    "  --dropout X        of embeddings and of what a layer gives (0.2)\n"
    "  --lr X             learning rate, a quarter after each epoch that is no better (20)\n"
    "  --clip X           the largest norm of the gradient (0.25)\n"
    "  --epochs N         train until N epochs since the start of training (40)\n"
    "  --batch-size N     columns of the text per rank (20)\n"
    "  --bptt N           characters that a gradient goes back over (35)\n"
    "  --checkpoint FILE  where to save after each epoch (lstm_text.safetensors)\n"
    "  --resume FILE      go on from a checkpoint; other flags as before\n"
    "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
    "  --device NAME      train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
    "  --write N          characters to write at the end (400)\n"
    "  --prompt TEXT      what they go on from (the text's first character)\n"
    "  --temperature X    the higher the bolder (0.8)\n"
    "  --seed N           of weights, dropout, the text that is written (1111)\n"
    "  --help             this text\n";

/* Columns of the held-out text, all ranks'. */
enum { TEST_COLUMNS = 10 };

typedef struct Options {
    const char *data, *checkpoint, *resume, *metrics, *prompt, *device;
    int64_t emsize, nhid, nlayers, epochs, batch_size, bptt, write, seed;
    double dropout, lr, clip, temperature;
} Options;

/* The windows of a text, `length` of them in each of all ranks' columns; this rank has the columns rank, rank + world,
 * ..., `count` of them. */
typedef struct Columns {
    tt_dataset *windows;
    int64_t columns, length, rank, world, count;
    tt_sampler *sampler;
    tt_loader *loader; /* a batch is a window of each column; NULL: this rank has none */
} Columns;

/* h, c (L,B,H): what an LSTM remembers. NULL: nothing yet. */
typedef struct State {
    tt_tensor *h, *c;
    int64_t epoch; /* in which it was trained on */
} State;

typedef struct Run {
    tt_group *world;
    const Options *options;
    tt_tokenizer *letters;
    char first[2]; /* the text's first character */
    const char *prompt;
    tt_tensor *prompt_tokens;
    Columns train, test;
    const tt_device *device;
    tt_module *model;
    tt_optimizer *sgd;
    tt_lr_scheduler *quarter;
    State train_state, test_state;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
    tt_trainer_result result;
} Run;

/* ---- the command line ---- */

static bool parse_options(Options *o, int argc, char **argv) {
    *o = (Options){.checkpoint = "lstm_text.safetensors",
                   .device = "cpu",
                   .emsize = 200,
                   .nhid = 200,
                   .nlayers = 2,
                   .epochs = 40,
                   .batch_size = 20,
                   .bptt = 35,
                   .write = 400,
                   .seed = 1111,
                   .dropout = 0.2,
                   .lr = 20,
                   .clip = 0.25,
                   .temperature = 0.8};
    const Flag flags[] = {
        {"data", .text = &o->data},
        {"emsize", .integer = &o->emsize, .min = 1},
        {"nhid", .integer = &o->nhid, .min = 1},
        {"nlayers", .integer = &o->nlayers, .min = 1},
        {"dropout", .real = &o->dropout},
        {"lr", .real = &o->lr},
        {"clip", .real = &o->clip},
        {"epochs", .integer = &o->epochs, .min = 1},
        {"batch-size", .integer = &o->batch_size, .min = 1},
        {"bptt", .integer = &o->bptt, .min = 1},
        {"checkpoint", .text = &o->checkpoint},
        {"resume", .text = &o->resume},
        {"metrics", .text = &o->metrics},
        {"device", .text = &o->device},
        {"write", .integer = &o->write},
        {"prompt", .text = &o->prompt},
        {"temperature", .real = &o->temperature},
        {"seed", .integer = &o->seed},
    };
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return false;
    if (o->prompt && !*o->prompt)
        return complain("--prompt: expected at least one character", "");
    if (o->temperature <= 0)
        return complain("--temperature: expected a number above 0", "");
    return true;
}

/* ---- the text ---- */

/* The windows of this rank's columns in the order of their reading: the first of each column, then the second. */
static tt_status order_columns(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const Columns *c = user;
    (void)epoch;
    for (int64_t i = 0; i < n; i++)
        indices[i] = (c->rank + i % c->count * c->world) * c->length + i / c->count;
    return TT_OK;
}

/* Cut `size` bytes into at most `columns` columns, or exactly as many for training. What is left over is not used. */
static tt_status open_columns(Columns *c, const Run *r, const char *text, size_t size, int64_t columns, bool exactly) {
    tt_tensor *tokens = NULL;
    int64_t bptt = r->options->bptt, windows = ((int64_t)size - 1) / bptt;
    if (windows < (exactly ? columns : 1))
        return tt_fail(TT_ERR_INVALID,
                       "%s: %" PRId64 " characters give %" PRId64 " windows of --bptt %" PRId64 ", expected at least "
                       "%" PRId64 ", one a column: take a longer text or a smaller --bptt or --batch-size",
                       r->options->data ? r->options->data : "the sonnets", (int64_t)size, windows, bptt,
                       exactly ? columns : 1);
    if (tt_tokenizer_encode(&tokens, r->letters, text, size))
        return tt_last_status();
    c->columns = columns < windows ? columns : windows;
    c->length = windows / c->columns;
    c->windows = tt_window_dataset(tokens, bptt);
    c->rank = tt_get_rank(r->world);
    c->world = tt_get_world_size(r->world);
    c->count = (c->columns - c->rank + c->world - 1) / c->world;
    if (!c->windows || c->count < 1)
        return c->windows ? TT_OK : tt_last_status();
    c->sampler =
        tt_sampler_from(tt_dataset_size(c->windows), c->count * c->length, order_columns, .user = c, .name = "columns");
    c->loader = tt_loader_new(c->windows, c->count, c->sampler);
    return c->loader ? TT_OK : tt_last_status();
}

static void close_columns(Columns *c) {
    tt_loader_free(c->loader);
    tt_sampler_free(c->sampler);
    tt_dataset_free(c->windows);
}

/* The first nine tenths are for training. */
static tt_status split_text(Run *r, const char *text, size_t size) {
    size_t trained = size - size / 10;
    if (!size)
        return tt_fail(TT_ERR_INVALID, "%s is empty", r->options->data);
    r->first[0] = *text;
    r->prompt = r->options->prompt ? r->options->prompt : r->first;
    r->letters = tt_char_vocab(text, size);
    tt_status status = tt_tokenizer_encode(&r->prompt_tokens, r->letters, r->prompt, strlen(r->prompt));
    if (status)
        return status;
    status = open_columns(&r->train, r, text, trained, r->options->batch_size * tt_get_world_size(r->world), true);
    return status ? status : open_columns(&r->test, r, text + trained, size - trained, TEST_COLUMNS, false);
}

static tt_status open_text(Run *r) {
    tt_tensor *bytes = NULL;
    if (!r->options->data)
        return split_text(r, sonnets, sizeof sonnets - 1);
    tt_status status = tt_bytes_read(&bytes, r->options->data);
    if (!status)
        status = split_text(r, tt_tensor_data(bytes), (size_t)tt_tensor_numel(bytes));
    tt_tensor_free(bytes);
    return status;
}

/* ---- the model ---- */

/* x (B,T) characters, h, c (L,B,H) -> logits (B,T,V), h, c */
static tt_status forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    tt_module *drop = tt_module_child(self, "drop");
    tt_tensor *x = tt_module_forward(drop, tt_module_forward(tt_module_child(self, "encoder"), in[0]));
    (void)in_count;
    tt_status status =
        tt_module_forward_many(tt_module_child(self, "rnn"), TT_TENSORS(x, in[1], in[2]), out, out_count);
    out[0] = tt_module_forward(tt_module_child(self, "decoder"), tt_module_forward(drop, out[0]));
    return status ? status : out[0] ? TT_OK : tt_last_status();
}

static const tt_module_class text_class =
    TT_MODULE_CLASS(.name = "TextModel", .forward_many = forward, .inputs = 3, .outputs = 3);

/* The embedding and the decoder begin as they do in Python. */
static tt_status draw_weights(tt_module *model) {
    const tt_named_tensors *all = tt_module_parameters(model);
    tt_status status = tt_uniform_(tt_named_tensors_find(all, "encoder.weight"), -0.1, 0.1, NULL);
    if (!status)
        status = tt_init_zeros_(tt_named_tensors_find(all, "decoder.bias"));
    return status ? status : tt_uniform_(tt_named_tensors_find(all, "decoder.weight"), -0.1, 0.1, NULL);
}

/* Parts have the names that they have in Python. */
static tt_module *new_model(const Options *o, int64_t vocabulary) {
    tt_module *model = tt_module_new(&text_class, NULL);
    tt_status status = tt_module_add_module(model, "drop", tt_nn_dropout(o->dropout));
    if (!status)
        status = tt_module_add_module(model, "encoder", tt_nn_embedding(vocabulary, o->emsize));
    if (!status)
        status = tt_module_add_module(
            model, "rnn",
            tt_nn_lstm(o->emsize, o->nhid, .num_layers = o->nlayers, .dropout = o->dropout, .batch_first = true));
    if (!status)
        status = tt_module_add_module(model, "decoder", tt_nn_linear(o->nhid, vocabulary));
    if (!status)
        status = draw_weights(model);
    if (!status)
        return model;
    tt_module_free(model);
    return NULL;
}

/* ---- the state ---- */

static void forget(State *s) {
    tt_tensor_free(s->h);
    tt_tensor_free(s->c);
    s->h = s->c = NULL;
}

/* Run `model` on x (B,T), from the state to a new one, which is detached: the gradient goes back no further. Returns
 * logits (B,T,V). */
static tt_tensor *go_on(tt_module *model, const Options *o, tt_tensor *x, State *s) {
    tt_tensor *out[3] = {0};
    tt_shape shape = TT_SHAPE(o->nlayers, tt_tensor_size(x, 0), o->nhid);
    tt_tensor *zeros = tt_to_device(tt_zeros(shape, TT_F32), tt_tensor_device(x));
    tt_tensor *h = s->h ? s->h : zeros, *c = s->c ? s->c : zeros;
    if (tt_module_forward_many(model, TT_TENSORS(x, h, c), out, 3))
        return NULL;
    forget(s);
    s->h = tt_keep(tt_detach(out[1]));
    s->c = tt_keep(tt_detach(out[2]));
    return s->h && s->c ? out[0] : NULL;
}

/* Of training and of testing. Each epoch, and each evaluation, begins at the text's begin with an empty state. */
static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    Run *r = user;
    State *s = tt_trainer_evaluating(t) ? &r->test_state : &r->train_state;
    if (!tt_trainer_evaluating(t)) {
        forget(&r->test_state);
        if (s->epoch != tt_trainer_epoch(t))
            forget(s);
        s->epoch = tt_trainer_epoch(t);
    }
    tt_tensor *logits = go_on(tt_trainer_model(t), r->options, tt_to_device(b->x, r->device), s);
    return tt_cross_entropy(tt_reshape(logits, TT_SHAPE(-1, tt_tokenizer_size(r->letters))),
                            tt_reshape(tt_to_device(b->y, r->device), TT_SHAPE(-1)));
}

/* ---- what is printed ---- */

static void introduce(const Run *r) {
    int world = tt_get_world_size(r->world);
    if (tt_get_rank(r->world) != 0)
        return;
    printf("%" PRId64 " windows of %" PRId64 " characters and %" PRId64 " held out, %" PRId64
           " different characters, %d rank%s, batches of %" PRId64 " a rank\n",
           r->train.columns * r->train.length, r->options->bptt, r->test.columns * r->test.length,
           tt_tokenizer_size(r->letters), world, world == 1 ? "" : "s", r->train.count);
    fflush(stdout);
}

/* A line an epoch, with perplexities: how many characters the model is in doubt between. */
static void display(const tt_trainer_report *report, void *user) {
    const Run *r = user;
    if (report->event != TT_TRAINER_EPOCH) {
        tt_trainer_console(report, stdout);
        return;
    }
    double loss = report->train[0].value;
    printf("Epoch %" PRId64 ", loss %.4f, perplexity %.2f", report->epoch, loss, exp(loss));
    if (report->eval_count)
        printf(", held-out loss %.4f, held-out perplexity %.2f", report->eval[0].value, exp(report->eval[0].value));
    printf(", %.0f characters/s\n", (double)(report->examples * r->options->bptt) / report->seconds);
    fflush(stdout);
}

/* ---- writing ---- */

/* Choose a character by its chances, logits (V) divided by the temperature. */
static int64_t choose(const float *logit, int64_t n, double temperature, tt_generator *generator) {
    double most = logit[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        most = logit[i] > most ? logit[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp((logit[i] - most) / temperature);
    double left = sum * tt_generator_random(generator) / 4294967296.0;
    for (int64_t i = 0; i < n; i++)
        if ((left -= exp((logit[i] - most) / temperature)) < 0)
            return i;
    return n - 1;
}

/* Read x (1,T), then write a character, which becomes *next. */
static tt_status write_next(Run *r, tt_tensor *x, State *s, tt_generator *generator, int64_t *next) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *logits = go_on(r->model, r->options, tt_to_device(x, r->device), s);
    tt_tensor *newest = tt_to_device(tt_select(tt_select(logits, 0, 0), 0, -1), TT_CPU);
    const float *last = tt_tensor_f32(tt_contiguous(newest));
    char letter;
    size_t length;
    if (!last)
        return tt_last_status();
    *next = choose(last, tt_tokenizer_size(r->letters), r->options->temperature, generator);
    if (tt_tokenizer_decode(&length, r->letters, next, 1, &letter, 1))
        return tt_last_status();
    fwrite(&letter, 1, 1, stdout);
    return TT_OK;
}

/* On rank 0: the others have the same model. */
static tt_status write_text(Run *r) {
    const Options *o = r->options;
    State state = {0};
    int64_t next = 0;
    if (tt_get_rank(r->world) != 0 || o->write == 0)
        return TT_OK;
    tt_generator *generator = tt_generator_new((uint64_t)o->seed);
    tt_status status = generator ? TT_OK : tt_last_status();
    tt_module_eval(r->model);
    for (int64_t i = 0; i < o->write && !status; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x =
            i ? tt_full(TT_SHAPE(1, 1), TT_I64, (double)next) : tt_reshape(r->prompt_tokens, TT_SHAPE(1, -1));
        if (i == 0)
            printf("---\n%s", r->prompt);
        status = x ? write_next(r, x, &state, generator, &next) : tt_last_status();
    }
    printf("\n");
    forget(&state);
    tt_generator_free(generator);
    return status;
}

/* ---- the run ---- */

static tt_status set_up(Run *r) {
    const Options *o = r->options;
    if (open_text(r))
        return tt_last_status();
    tt_manual_seed((uint64_t)o->seed);
    r->model = new_model(o, tt_tokenizer_size(r->letters));
    r->device = find_device(o->device);
    if (!r->model || !r->device || tt_module_to_device(r->model, r->device))
        return tt_last_status();
    r->sgd = tt_sgd(tt_module_parameters(r->model), o->lr);
    r->quarter = tt_reduce_lr_on_plateau(r->sgd, 0, .factor = 0.25);
    if (!r->quarter)
        return tt_last_status();
    if (o->metrics && tt_get_rank(r->world) == 0 && !(r->metrics = tt_summary_writer_new(o->metrics)))
        return tt_last_status();
    return TT_OK;
}

static tt_status train(Run *r) {
    const Options *o = r->options;
    return tt_trainer_run(r->model, r->sgd, r->train.loader, step, .user = r, .group = r->world, .epochs = o->epochs,
                          .clip_norm = o->clip, .step_seed = (uint64_t)o->seed + 1, .scheduler = r->quarter,
                          .scheduler_when = TT_TRAINER_EACH_EVALUATION, .eval_loader = r->test.loader,
                          .checkpoint = o->checkpoint, .save_every = 1, .resume = o->resume, .stop_on_signals = true,
                          .metrics = r->metrics, .display = display, .display_user = r, .result = &r->result);
}

static void tear_down(Run *r) {
    forget(&r->train_state);
    forget(&r->test_state);
    tt_summary_writer_free(r->metrics);
    tt_lr_scheduler_free(r->quarter);
    tt_optimizer_free(r->sgd);
    tt_module_free(r->model);
    close_columns(&r->test);
    close_columns(&r->train);
    tt_tensor_free(r->prompt_tokens);
    tt_tokenizer_free(r->letters);
    tt_destroy_process_group(r->world);
}

int main(int argc, char **argv) {
    Options options;
    Run run = {.options = &options};
    if (!parse_options(&options, argc, argv))
        return 2;
    tt_status status = join_job(&run.world);
    if (!status)
        status = set_up(&run);
    if (!status) {
        introduce(&run);
        status = train(&run);
    }
    if (!status && run.result.reason != TT_TRAINER_SIGNAL)
        status = write_text(&run);
    if (!status)
        status = flush_output();
    if (status)
        tt_report();
    tear_down(&run);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
