/* A network that is split over two workers: the embedding table and the decoder, which grow with the vocabulary, lie on
 * a server; the trainer has the LSTM between them. Mirrors PyTorch's tutorial "Distributed RNN using Distributed
 * Autograd and Distributed Optimizer":
 *
 *     class RNNModel(nn.Module):
 *         def __init__(self, ps, ntoken, ninp, nhid, nlayers):
 *             self.emb_table_rref = rpc.remote(ps, EmbeddingTable, args=(ntoken, ninp))
 *             self.rnn = nn.LSTM(ninp, nhid, nlayers)
 *             self.decoder_rref = rpc.remote(ps, Decoder, args=(ntoken, nhid))
 *
 *         def forward(self, input, hidden):
 *             emb = _remote_method(EmbeddingTable.forward, self.emb_table_rref, input)
 *             output, hidden = self.rnn(emb, hidden)
 *             return _remote_method(Decoder.forward, self.decoder_rref, output), hidden
 *
 *   tutti run --nproc-per-node=2 build/examples/rpc_rnn
 *   tutti run --nproc-per-node=2 build/examples/rpc_rnn --data input.txt --batches 1000
 *
 * Shapes: B columns of the text, T characters of a window, V of the vocabulary, L layers, C, H sizes. */
#include "flags.h"
#include "rpc_workers.h"
#include "sonnets.h"

static const char program_name[] = "rpc_rnn";

static const char usage[] = "usage: tutti run --nproc-per-node=2 rpc_rnn [FLAGS]\n"
                            "\n"
                            "Train an LSTM to tell a text's next character. Rank 0 has the embedding and the decoder,\n"
                            "rank 1 the LSTM.\n"
                            "\n"
                            "  --data FILE       the text; without: four sonnets\n"
                            "  --batches N       steps (40)\n"
                            "  --batch-size N    columns of the text (10)\n"
                            "  --bptt N          characters that a gradient goes back over (20)\n"
                            "  --nhid N          hidden units of a layer (64)\n"
                            "  --nlayers N       layers (2)\n"
                            "  --lr X            learning rate (2)\n"
                            "  --help            this text\n";

enum { EMBEDDING = 32, PARAMETERS_MAX = 3 + 4 * 1000, SEED = 1111 };

typedef struct Options {
    const char *data;
    int64_t batches, batch_size, bptt, nhid, nlayers;
    double lr;
} Options;

/* ---- the server's functions ---- */

/* They begin as the tutorial's do, whichever thread they are made in: a default generator is a thread's. */
static tt_status make_table(tt_rpc_call *call) {
    tt_manual_seed(SEED);
    tt_module *table = tt_nn_embedding(tt_rpc_arg_int(call, 0), EMBEDDING);
    if (table && tt_uniform_(tt_module_parameters(table)->tensors[0], -0.1, 0.1, NULL)) {
        tt_module_free(table);
        return tt_last_status();
    }
    return tt_rpc_return_module(call, table);
}
TT_RPC_FUNCTION(make_table, "(int characters) -> any");

static tt_status make_decoder(tt_rpc_call *call) {
    tt_manual_seed(SEED + 1);
    tt_module *decoder = tt_nn_linear(tt_rpc_arg_int(call, 1), tt_rpc_arg_int(call, 0));
    const tt_named_tensors *all = tt_module_parameters(decoder);
    if (decoder && (tt_uniform_(all->tensors[0], -0.1, 0.1, NULL) || tt_init_zeros_(all->tensors[1]))) {
        tt_module_free(decoder);
        return tt_last_status();
    }
    return tt_rpc_return_module(call, decoder);
}
TT_RPC_FUNCTION(make_decoder, "(int characters, int hidden) -> any");

/* ---- the trainer ---- */

typedef struct Trainer {
    const Options *options;
    tt_rpc *rpc;
    tt_tensor *text;  /* i64, its characters' numbers */
    int64_t alphabet; /* V */
    tt_remote_module *table, *decoder;
    tt_module *lstm;
    tt_dist_optimizer *sgd;
    tt_tensor *h, *c; /* (L,B,H): what the LSTM remembers */
} Trainer;

static tt_status read_text(Trainer *t) {
    const Options *o = t->options;
    tt_tensor *bytes = NULL;
    if (o->data && tt_bytes_read(&bytes, o->data))
        return tt_last_status();
    const char *text = bytes ? tt_tensor_data(bytes) : sonnets;
    size_t size = bytes ? (size_t)tt_tensor_numel(bytes) : sizeof sonnets - 1;
    tt_tokenizer *letters = tt_char_vocab(text, size);
    tt_status status = tt_tokenizer_encode(&t->text, letters, text, size);
    t->alphabet = tt_tokenizer_size(letters);
    tt_tokenizer_free(letters);
    tt_tensor_free(bytes);
    if (!status && tt_tensor_numel(t->text) / o->batch_size <= o->bptt)
        status = tt_fail(TT_ERR_INVALID,
                         "a text of %zu characters is too short for --batch-size %" PRId64 " and --bptt %" PRId64, size,
                         o->batch_size, o->bptt);
    return status;
}

/* The optimizer's parameters are the server's, and the LSTM's. */
static tt_status make_optimizer(Trainer *t) {
    const tt_named_tensors *own = tt_module_parameters(t->lstm);
    tt_rref *params[PARAMETERS_MAX], **table = NULL, **decoder = NULL;
    int64_t count = 0, in_table = 0, in_decoder = 0;
    tt_status status = tt_remote_module_parameters(t->table, &table, &in_table);
    if (!status)
        status = tt_remote_module_parameters(t->decoder, &decoder, &in_decoder);
    for (int64_t p = 0; p < in_table; p++)
        params[count++] = table[p];
    for (int64_t p = 0; p < in_decoder; p++)
        params[count++] = decoder[p];
    for (int64_t p = 0; p < own->count; p++)
        params[count++] = tt_rref_new(t->rpc, tt_rpc_tensor(own->tensors[p]));
    if (!status)
        status = tt_dist_optimizer_new(&t->sgd, t->rpc, params, count, "sgd",
                                       .options = TT_OPTION_LIST({"lr", t->options->lr}));
    for (int64_t p = in_table + in_decoder; p < count; p++)
        tt_rref_free(params[p]);
    tt_rrefs_free(table, in_table);
    tt_rrefs_free(decoder, in_decoder);
    return status;
}

static tt_status make_model(Trainer *t) {
    const Options *o = t->options;
    tt_status status =
        tt_remote_module_new(&t->table, t->rpc, "ps", "make_table", .args = TT_RPC_ARGS(tt_rpc_int(t->alphabet)));
    if (!status)
        status = tt_remote_module_new(&t->decoder, t->rpc, "ps", "make_decoder",
                                      .args = TT_RPC_ARGS(tt_rpc_int(t->alphabet), tt_rpc_int(o->nhid)));
    tt_manual_seed(SEED + 2);
    t->lstm = tt_nn_lstm(EMBEDDING, o->nhid, .num_layers = o->nlayers);
    t->h = tt_zeros(TT_SHAPE(o->nlayers, o->batch_size, o->nhid), TT_F32);
    t->c = tt_zeros(TT_SHAPE(o->nlayers, o->batch_size, o->nhid), TT_F32);
    if (!status && (!t->lstm || !t->h || !t->c))
        return tt_last_status();
    return status ? status : make_optimizer(t);
}

/* The window of the text at `start` of each column. (T,B) */
static tt_tensor *window_at(const Trainer *t, int64_t start) {
    const Options *o = t->options;
    int64_t length = tt_tensor_numel(t->text) / o->batch_size;
    tt_tensor *columns = tt_reshape(tt_narrow(t->text, 0, 0, length * o->batch_size), TT_SHAPE(o->batch_size, length));
    return tt_contiguous(tt_transpose(tt_narrow(columns, 1, start, o->bptt), 0, 1));
}

/* The gradient goes through both workers, but no further back than this window. */
static tt_status train_window(Trainer *t, int64_t context, int64_t start, double *loss_value) {
    TT_AUTO_SCOPE;
    tt_tensor *out[3], *x = window_at(t, start), *y = window_at(t, start + 1);
    tt_tensor *embedded = tt_remote_module_forward(t->table, x);
    if (tt_module_forward_many(t->lstm, TT_TENSORS(embedded, t->h, t->c), out, 3))
        return tt_last_status();
    tt_tensor *logits = tt_remote_module_forward(t->decoder, out[0]);
    tt_tensor *loss = tt_cross_entropy(tt_reshape(logits, TT_SHAPE(-1, t->alphabet)), tt_reshape(y, TT_SHAPE(-1)));
    if (tt_dist_autograd_backward(t->rpc, context, &loss, 1) || tt_dist_optimizer_step(t->sgd, context) ||
        tt_copy(t->h, tt_detach(out[1])) || tt_copy(t->c, tt_detach(out[2])))
        return tt_last_status();
    return tt_item(loss, loss_value);
}

static tt_status train(Trainer *t) {
    const Options *o = t->options;
    int64_t windows = (tt_tensor_numel(t->text) / o->batch_size - 1) / o->bptt;
    for (int64_t i = 0; i < o->batches; i++) {
        double loss;
        int64_t context;
        if (tt_dist_autograd_begin(&context, t->rpc) || train_window(t, context, i % windows * o->bptt, &loss) ||
            tt_dist_autograd_end(t->rpc, context))
            return tt_last_status();
        printf("batch %" PRId64 ": loss %.6f\n", i, loss);
    }
    return TT_OK;
}

static tt_status be_trainer(Trainer *t) {
    tt_status status = read_text(t);
    if (!status)
        status = make_model(t);
    if (!status)
        status = train(t);
    tt_dist_optimizer_free(t->sgd);
    tt_remote_module_free(t->table);
    tt_remote_module_free(t->decoder);
    tt_module_free(t->lstm);
    tt_tensor_free(t->text);
    tt_tensor_free(t->h);
    tt_tensor_free(t->c);
    return status;
}

int main(int argc, char **argv) {
    Options o = {.batches = 40, .batch_size = 10, .bptt = 20, .nhid = 64, .nlayers = 2, .lr = 2};
    const Flag flags[] = {
        {"data", .text = &o.data},
        {"batches", .integer = &o.batches, .min = 1},
        {"batch-size", .integer = &o.batch_size, .min = 1},
        {"bptt", .integer = &o.bptt, .min = 1},
        {"nhid", .integer = &o.nhid, .min = 1},
        {"nlayers", .integer = &o.nlayers, .min = 1},
        {"lr", .real = &o.lr},
    };
    Trainer t = {.options = &o};
    tt_group *world = NULL;
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return 2;
    tt_status status = join_ranks(&world, 2, 2);
    if (!status)
        status = become_worker(&t.rpc, world, "ps", "trainer");
    if (!status && tt_get_rank(world) == 1)
        status = be_trainer(&t);
    return end_worker(t.rpc, world, status);
}
