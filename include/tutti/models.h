/* tutti/models.h: ready models, with the names and initial weights of the programs they are known from.
 *
 * Each is a module like any other (nn.h): the caller's to free, its parts are children that can be looked up, changed
 * and frozen, and NULL is returned, with an error that begins with the constructor's name, where it can't be made.
 * Unless said otherwise a seed gives the bits of PyTorch's model. */
#ifndef TUTTI_MODELS_H
#define TUTTI_MODELS_H

#include <tutti/nn.h>

TT_BEGIN_DECLS

/* ---- for digits ---- */

typedef struct tt_model_mlp_args {
    const int64_t *sizes; /* required: of the input, the hidden layers and the output */
    int64_t count;        /* required: how many, at least 2 */
    TT_OPTIONS;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_model_mlp_args;

/* A Sequential of Flatten, Linear, ReLU, Linear, ..., Linear: x (N,...), of sizes[0] elements each, -> (N, last size).
 * Its linear layers are "1", "3", ...
 *   tt_model_mlp(TT_SIZES(784, 512, 10))
 * Errors: TT_ERR_INVALID less than two sizes, or one below 1; TT_ERR_DTYPE. */
TT_API tt_module *tt_model_mlp_with(const tt_model_mlp_args *args, size_t size);

typedef struct tt_model_mnist_convnet_args {
    double dropout1; /* required: of the image, before fc1; 0.25 in PyTorch's example, 0 drops nothing */
    double dropout2; /* required: before fc2; 0.5 in PyTorch's example */
    TT_OPTIONS;
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_model_mnist_convnet_args;

/* The network of PyTorch's basic MNIST example: x (N,1,28,28) -> the logarithms of probabilities (N,10). Its parts are
 * "conv1", "conv2", "fc1", "fc2".
 *   tt_model_mnist_convnet(0.25, 0.5)
 * Errors: TT_ERR_INVALID a dropout outside of 0..1; TT_ERR_DTYPE. */
TT_API tt_module *tt_model_mnist_convnet_with(const tt_model_mnist_convnet_args *args, size_t size);

/* ---- residual networks ---- */

typedef struct tt_model_resnet18_args {
    int64_t num_classes; /* required */
    TT_OPTIONS;
    bool small_input;        /* for images of 32 x 32: a 3x3 convolution of stride 1 first, and no pooling after it */
    bool zero_init_residual; /* the last normalisation of each block begins with weight 0 */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_model_resnet18_args;

/* x (N,3,H,W), channels last or not -> (N,num_classes). Names are torchvision's, key for key: "layer1.0.conv1.weight",
 * "layer2.0.downsample.1.running_mean", "fc.bias". torchvision: resnet18, resnet34, resnet50.
 *   tt_model_resnet18(10, .small_input = true)
 * Errors: TT_ERR_INVALID num_classes below 1; TT_ERR_DTYPE. */
TT_API tt_module *tt_model_resnet18_with(const tt_model_resnet18_args *args, size_t size);
TT_API tt_module *tt_model_resnet34_with(const tt_model_resnet18_args *args, size_t size);
TT_API tt_module *tt_model_resnet50_with(const tt_model_resnet18_args *args, size_t size);

/* ---- language models: tokens i64 (B,T) -> the logits (B,T,vocabulary) of each next token ---- */

typedef struct tt_model_gpt_args {
    int64_t vocab_size; /* required */
    int64_t block_size; /* required: the most tokens of a text, T */
    int64_t n_embd;     /* required: width */
    int64_t n_layer;    /* required: at most 1000 */
    int64_t n_head;     /* required: divides n_embd */
    TT_OPTIONS;
    double dropout;          /* of embeddings, attention and what each half of a block adds */
    tt_generator *generator; /* NULL = the thread's default */
    tt_dtype dtype;          /* TT_F32, the default, or TT_F64 */
    char tt_end;             /* not an option: see base.h */
} tt_model_gpt_args;

/* A small GPT of PyTorch's layers, drawn as they draw, to be trained from the start: embeddings "e" of tokens and "p"
 * of positions; blocks "b.0", ... of layer norms "l1" and "l2", attention "qkv" and "o", linear layers "f" and "g" with
 * gelu between them; layer norm "l"; "head" without bias.
 *   tt_model_gpt(65, 128, 256, 4, 4)
 * Attention is fused, unless its weights are dropped: that takes T x T numbers a head, as it does for GPT-2.
 * Errors: TT_ERR_INVALID a size below 1, n_head doesn't divide n_embd, a dropout outside of 0..1; TT_ERR_DTYPE. Its
 * forward: TT_ERR_SHAPE more tokens than block_size, TT_ERR_INVALID a token out of the vocabulary, by name. */
TT_API tt_module *tt_model_gpt_with(const tt_model_gpt_args *args, size_t size);

typedef struct tt_model_gpt2_args {
    int64_t vocab_size;  /* required; 50257 in the published ones */
    int64_t n_positions; /* required: the most tokens of a text; 1024 */
    int64_t n_embd;      /* required: width; 768, 1024, 1280, 1600 */
    int64_t n_layer;     /* required; 12, 24, 36, 48; at most 1000 */
    int64_t n_head;      /* required: divides n_embd; 12, 16, 20, 25 */
    TT_OPTIONS;
    double embd_pdrop, attn_pdrop, resid_pdrop; /* dropouts; 0, the default, drops nothing, where theirs is 0.1 */
    int64_t n_inner;                            /* width between the linear layers; 0, the default: 4 n_embd */
    double layer_norm_epsilon;                  /* 0, the default: 1e-5 */
    bool exact_gelu;                            /* gelu by erf, and not by tanh */
    bool no_weight_tying;                       /* the head has weights of its own */
    tt_generator *generator;                    /* NULL = the thread's default */
    tt_dtype dtype;                             /* TT_F32, the default, or TT_F64 */
    char tt_end;                                /* not an option: see base.h */
} tt_model_gpt2_args;

/* GPT-2 under the names of Hugging Face's GPT2LMHeadModel: "transformer.wte.weight",
 * "transformer.h.0.attn.c_attn.weight" (in,out), ..., "lm_head.weight", which is the table of tokens again. Matrices
 * begin normal with deviation 0.02, each c_proj with 0.02 / sqrt(2 n_layer), drawn in the order of the parameters,
 * which are not the bits of a Hugging Face model.
 *   tt_model_gpt2(50257, 1024, 768, 12, 12, .resid_pdrop = 0.1)
 * Errors as tt_model_gpt()'s. */
TT_API tt_module *tt_model_gpt2_with(const tt_model_gpt2_args *args, size_t size);

/* Load a state dict into a GPT-2, as it is found: names with or without "transformer." (and "module."), with or without
 * a tied head, with masks of attention ("attn.bias", "attn.masked_bias"), which are ignored; floats of other types are
 * converted. All or nothing; errors as tt_module_load_state_dict()'s, and TT_ERR_INVALID another kind of model. */
TT_API TT_NODISCARD tt_status tt_model_gpt2_load_state_dict(tt_module *model, const tt_named_tensors *state);

typedef struct tt_model_gpt2_from_pretrained_args {
    const char *path; /* required: a folder, a safetensors file or its index; config.json lies in it or beside it */
    TT_OPTIONS;
    tt_dtype dtype; /* TT_F32, the default, or TT_F64 */
    char tt_end;    /* not an option: see base.h */
} tt_model_gpt2_from_pretrained_args;

/* Make a GPT-2 of what Hugging Face's libraries saved or published, in evaluation mode; the dropouts are those of
 * config.json. In a folder the weights are model.safetensors, or else model.safetensors.index.json.
 *   tt_model_gpt2_from_pretrained("gpt2")
 * NULL on failure, with the path: TT_ERR_IO a file can't be read; TT_ERR_FORMAT config.json or the weights are broken,
 * or lack a size; TT_ERR_UNSUPPORTED another kind of model, or a setting that GPT-2 is not known with;
 * TT_ERR_NOT_FOUND, TT_ERR_SHAPE weights that don't fit config.json, all by name. */
TT_API tt_module *tt_model_gpt2_from_pretrained_with(const tt_model_gpt2_from_pretrained_args *args, size_t size);

/* ---- text ---- */

/* Called with each token as it is made. False ends the text with it. It must not use the model. */
typedef bool (*tt_token_callback)(int64_t token, void *user);

typedef struct tt_model_generate_args {
    int64_t *tokens;        /* required: receives the new tokens; room for max_new_tokens */
    int64_t *count;         /* required, may be NULL: receives their number, also on failure */
    tt_module *model;       /* required: a tt_model_gpt() or tt_model_gpt2(), wrapped or not */
    const int64_t *prompt;  /* required: what the text begins with, prompt_count tokens */
    int64_t prompt_count;   /* required: at least 1 */
    int64_t max_new_tokens; /* required */
    TT_OPTIONS;
    /* logits are divided by it: higher is more random. 0, the default: the likeliest token */
    double temperature;
    int64_t top_k;              /* choose among the k likeliest tokens; 0, the default: all */
    double top_p;               /* also choose among the likeliest that together have this probability; 0: all */
    tt_generator *generator;    /* NULL = the thread's default */
    tt_index stop_token;        /* ends the text, as its last token */
    bool sliding_window;        /* beyond the model's positions: see below */
    tt_token_callback on_token; /* NULL: none */
    void *user;                 /* handed to it */
    char tt_end;                /* not an option: see base.h */
} tt_model_generate_args;

/* Let a model go on with a text. Keys and values are kept, so that each token costs one position. Nothing is recorded
 * and nothing dropped, in training mode too; hooks run, except those of the model itself. A draw takes 64 bits of
 * the generator; the same seed gives the same text, though not PyTorch's.
 *   tt_model_generate(text, &n, model, prompt, 3, 100, .temperature = 0.8, .top_k = 40)
 * Beyond n_positions tokens: an error (TT_ERR_INVALID, before anything is made), or with .sliding_window the model
 * forgets the older half of what it knows and reads the rest again, whenever its positions are used up; of a longer
 * prompt it reads the end.
 * Blocks until the text is made. The keys and values are kept in the model: until it returns no other thread may call
 * or change the model.
 * Errors: TT_ERR_INVALID another kind of model, a token out of the vocabulary, options out of range; TT_ERR_NAN logits
 * that are no numbers; TT_ERR_STATE called from its own callback; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_model_generate_with(const tt_model_generate_args *args, size_t size);

#define TT_MODEL_MLP_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_MNIST_CONVNET_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_RESNET18_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_GPT_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_GPT2_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_GPT2_FROM_PRETRAINED_ARGS_INIT TT_ARGS_INIT
#define TT_MODEL_GENERATE_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
/* A list of sizes and how many they are. */
#define TT_SIZES(...) (const int64_t[]){__VA_ARGS__}, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define tt_model_mlp(...) tt_model_mlp_with(TT_ARGS(tt_model_mlp_args, .sizes = __VA_ARGS__))
#define tt_model_mnist_convnet(dropout1_, ...) \
    tt_model_mnist_convnet_with(TT_ARGS(tt_model_mnist_convnet_args, .dropout1 = (dropout1_), .dropout2 = __VA_ARGS__))
#define tt_model_resnet18(...) tt_model_resnet18_with(TT_ARGS(tt_model_resnet18_args, .num_classes = __VA_ARGS__))
#define tt_model_resnet34(...) tt_model_resnet34_with(TT_ARGS(tt_model_resnet18_args, .num_classes = __VA_ARGS__))
#define tt_model_resnet50(...) tt_model_resnet50_with(TT_ARGS(tt_model_resnet18_args, .num_classes = __VA_ARGS__))
#define tt_model_gpt(vocab_size_, block_size_, n_embd_, n_layer_, ...)                                     \
    tt_model_gpt_with(TT_ARGS(tt_model_gpt_args, .vocab_size = (vocab_size_), .block_size = (block_size_), \
                              .n_embd = (n_embd_), .n_layer = (n_layer_), .n_head = __VA_ARGS__))
#define tt_model_gpt2(vocab_size_, n_positions_, n_embd_, n_layer_, ...)                                       \
    tt_model_gpt2_with(TT_ARGS(tt_model_gpt2_args, .vocab_size = (vocab_size_), .n_positions = (n_positions_), \
                               .n_embd = (n_embd_), .n_layer = (n_layer_), .n_head = __VA_ARGS__))
#define tt_model_gpt2_from_pretrained(...) \
    tt_model_gpt2_from_pretrained_with(TT_ARGS(tt_model_gpt2_from_pretrained_args, .path = __VA_ARGS__))
#define tt_model_generate(tokens_, count_, model_, prompt_, prompt_count_, ...)                                       \
    tt_model_generate_with(TT_ARGS(tt_model_generate_args, .tokens = (tokens_), .count = (count_), .model = (model_), \
                                   .prompt = (prompt_), .prompt_count = (prompt_count_),                              \
                                   .max_new_tokens = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
