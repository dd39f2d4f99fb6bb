/* tutti/nn.h: modules: trees of named parameters with a forward function. Knows no ranks.
 *
 * Names are PyTorch's: a parameter is "child.grandchild.weight", children of a sequential are "0", "1", ...
 * A constructor returns NULL on failure and records an error; NULL children make a parent NULL, so a model needs one check. Modules,
 * parameters and buffers live until the root is freed, whatever scope is open. One thread at a time. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H

#include <tutti/autograd.h>

TT_BEGIN_DECLS

typedef struct tt_module tt_module;

/* A list of tensors with names. Borrowed from whoever gave it; empty (count 0) from a NULL or failed object. */
typedef struct tt_named_tensors {
    size_t count;
    const char *const *names;
    tt_tensor *const *tensors;
} tt_named_tensors;

/* ---- the layers ---- */

typedef struct tt_nn_linear_args {
    int64_t in_features;  /* required */
    int64_t out_features; /* required */
    bool no_bias;
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_nn_linear_args;

/* x (B...,in) -> (B...,out). Parameters "weight" (out,in) and "bias" (out), drawn in this order from U(-1/sqrt(in), 1/sqrt(in)), the
 * same bits as torch.nn.Linear. Errors: TT_ERR_INVALID sizes below 1. */
TT_API tt_module *tt_nn_linear_with(const tt_nn_linear_args *args, size_t size);

/* torch.nn.ReLU; torch.nn.Flatten(start_dim=1). */
TT_API tt_module *tt_nn_relu(void);
TT_API tt_module *tt_nn_flatten(void);

/* children[0] .. children[n-1], one after the other; owns them. On failure the children are freed too. */
TT_API tt_module *tt_nn_sequential_from(tt_module *const *children, size_t n);

#ifndef __cplusplus
#define tt_nn_linear(...) tt_nn_linear_with(TT_ARGS(tt_nn_linear_args, __VA_ARGS__))
#define tt_nn_sequential(...) \
    tt_nn_sequential_from((tt_module *[]){__VA_ARGS__}, sizeof((tt_module *[]){__VA_ARGS__}) / sizeof(tt_module *))
#endif

/* ---- modules of one's own ---- */

typedef struct tt_module_class {
    const char *name;                                     /* "ToyModel", for errors; borrowed for the module's life */
    tt_tensor *(*forward)(tt_module *self, tt_tensor *x); /* required */
    void (*destroy)(tt_module *self);                     /* optional: release tt_module_user(self) */
} tt_module_class;

/* An empty module of this class; `user` is handed back by tt_module_user(). */
TT_API tt_module *tt_module_new(const tt_module_class *cls, void *user);
TT_API void *tt_module_user(const tt_module *module);

/* Add a child under `name` (copied; no dots); the parent owns it, and frees it at once on failure. child NULL fails with the error
 * already recorded. Duplicate name: TT_ERR_INVALID. Order of registration is the order of parameters. */
TT_API tt_status tt_module_add_module(tt_module *parent, const char *name, tt_module *child);

/* Add a parameter: x becomes the module's and a leaf that requires a gradient (PyTorch: nn.Parameter). On failure x stays whose it was. */
TT_API tt_status tt_module_register_parameter(tt_module *module, const char *name, tt_tensor *x);

/* Child by name, or NULL with TT_ERR_NOT_FOUND. */
TT_API tt_module *tt_module_child(const tt_module *module, const char *name);

/* ---- every module ---- */

/* Run it. NULL module or x gives NULL. */
TT_API tt_tensor *tt_module_forward(tt_module *module, tt_tensor *x);

/* All parameters, with dotted names: a module's own in registration order, then those of its children, as in PyTorch; valid until the tree changes or is freed. */
TT_API tt_named_tensors tt_module_parameters(tt_module *module);

/* What a checkpoint holds: parameters (and, later, buffers). For a wrapper such as DDP the wrapped module's, without prefix. */
TT_API tt_named_tensors tt_module_state_dict(tt_module *module);

/* Copy values into the module's tensors, by name. Names may carry a leading "module." (what PyTorch's DDP adds). Strict:
 * TT_ERR_NOT_FOUND names a missing or an unexpected entry, TT_ERR_SHAPE and TT_ERR_DTYPE one that differs. All or nothing. */
TT_API tt_status tt_module_load_state_dict(tt_module *module, tt_named_tensors state);

/* Free a tree from its root (a module that has a parent is ignored, with an error recorded). NULL is allowed. */
TT_API void tt_module_free(tt_module *module);

TT_END_DECLS
#endif
