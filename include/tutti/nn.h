/* tutti/nn.h: modules: trees of named parameters and buffers with a forward function. Knows no ranks.
 *
 * Names are PyTorch's: a parameter is "child.grandchild.weight", children of a sequential are "0", "1", ...
 * A constructor returns NULL on failure and records an error; NULL children make a parent NULL, so a model needs one
 * check. Modules, parameters and buffers live until the root is freed, whatever scope is open, and while another module
 * wraps them. One thread at a time. */
#ifndef TUTTI_NN_H
#define TUTTI_NN_H

#include <tutti/autograd.h>
#include <tutti/functional.h>

TT_BEGIN_DECLS

typedef struct tt_module tt_module;

/* ---- lists ---- */

/* Modules with names; what tensor.h says of tt_named_tensors holds for them. */
typedef struct tt_named_modules {
    size_t size; /* sizeof(tt_named_modules) */
    int64_t count;
    const char *const *names;
    tt_module *const *modules;
} tt_named_modules;

/* ---- containers ---- */

/* A child and its name. */
typedef struct tt_named_child {
    const char *name;
    tt_module *module;
} tt_named_child;

typedef struct tt_nn_sequential_args {
    tt_module *const *children;  /* required, or `named`: `count` of them, whose names become "0", "1", ... */
    int64_t count;               /* required */
    const tt_named_child *named; /* `count` of them */
    char tt_end;                 /* not an option: see base.h */
} tt_nn_sequential_args;

/* Child 0 .. count-1, one after the other; owns them. On failure the children are freed too. The first child may take
 * and the last one give several tensors; between them passes one. PyTorch: Sequential, and
 * Sequential(OrderedDict(...)).
 *   tt_nn_sequential(tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10))
 *   tt_nn_sequential_named({"hidden", tt_nn_linear(784, 512)}, {"relu", tt_nn_relu()}, {"out", tt_nn_linear(512, 10)})
 * Errors: that of a NULL child; TT_ERR_STATE a child that has a parent already; TT_ERR_INVALID a name that is empty,
 * has a dot or comes twice. */
TT_API tt_module *tt_nn_sequential_with(const tt_nn_sequential_args *args, size_t size);

/* torch.nn.ModuleList: children "0", "1", ... / torch.nn.ModuleDict: children with names. They own them, also on
 * failure, as a sequential does, and have no forward (TT_ERR_UNSUPPORTED): the program runs their children.
 *   tt_module *blocks = tt_nn_module_list();
 *   for (int i = 0; i < 12; i++)
 *       if (tt_module_list_append(blocks, block())) ...
 *   tt_module_forward(tt_module_child_at(blocks, 3), x);
 *   tt_module *heads = tt_nn_module_dict({"digit", tt_nn_linear(64, 10)}, {"parity", tt_nn_linear(64, 2)});
 *   tt_module_forward(tt_module_child(heads, "digit"), x);
 * Errors: as of tt_nn_sequential(); TT_ERR_INVALID names for a list, or none for a dictionary. */
TT_API tt_module *tt_nn_module_list_with(const tt_nn_sequential_args *args, size_t size);
TT_API tt_module *tt_nn_module_dict_with(const tt_nn_sequential_args *args, size_t size);

/* Add a child to a ModuleList, under the next number. The list owns it, as tt_module_add_module(), whose errors these
 * are. TT_ERR_INVALID: another kind of module. */
TT_API TT_NODISCARD tt_status tt_module_list_append(tt_module *list, tt_module *child);

#define TT_NN_SEQUENTIAL_ARGS_INIT TT_ARGS_INIT
#define TT_NN_MODULE_LIST_ARGS_INIT TT_ARGS_INIT
#define TT_NN_MODULE_DICT_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_nn_sequential(...)                                                                                     \
    tt_nn_sequential_with(                                                                                        \
        &(tt_nn_sequential_args){.children = (tt_module *[]){__VA_ARGS__},                                        \
                                 .count = (int64_t)(sizeof((tt_module *[]){__VA_ARGS__}) / sizeof(tt_module *))}, \
        offsetof(tt_nn_sequential_args, tt_end))
#define tt_nn_sequential_named(...)                                                                             \
    tt_nn_sequential_with(&(tt_nn_sequential_args){.named = (tt_named_child[]){__VA_ARGS__},                    \
                                                   .count = (int64_t)(sizeof((tt_named_child[]){__VA_ARGS__}) / \
                                                                      sizeof(tt_named_child))},                 \
                          offsetof(tt_nn_sequential_args, tt_end))
/* The leading NULL, which is skipped, lets the list be empty. */
#define tt_nn_module_list(...)                                                                                         \
    tt_nn_module_list_with(                                                                                            \
        &(tt_nn_sequential_args){.children = (tt_module *[]){NULL, __VA_ARGS__} + 1,                                   \
                                 .count =                                                                              \
                                     (int64_t)(sizeof((tt_module *[]){NULL, __VA_ARGS__}) / sizeof(tt_module *)) - 1}, \
        offsetof(tt_nn_sequential_args, tt_end))
#define tt_nn_module_dict(...)                                                                                       \
    tt_nn_module_dict_with(                                                                                          \
        &(tt_nn_sequential_args){                                                                                    \
            .named = (tt_named_child[]){{NULL, NULL}, __VA_ARGS__} + 1,                                              \
            .count = (int64_t)(sizeof((tt_named_child[]){{NULL, NULL}, __VA_ARGS__}) / sizeof(tt_named_child)) - 1}, \
        offsetof(tt_nn_sequential_args, tt_end))
#endif

/* ---- modules of one's own ---- */

/* What a kind of module does. A class has `forward`, `forward_many`, both, or `wrapped`.
 *   static const tt_module_class toy_class = TT_MODULE_CLASS(.name = "ToyModel", .forward = toy_forward); */
typedef struct tt_module_class {
    size_t size;      /* sizeof(tt_module_class): TT_MODULE_CLASS sets it */
    const char *name; /* "ToyModel", for errors; borrowed for the module's life */

    /* One tensor to one. NULL and a recorded error on failure; NULL alone is an error that names the module. */
    tt_tensor *(*forward)(tt_module *self, tt_tensor *x);

    /* Several to several: set all `output_count` outputs. Inputs are never NULL. `inputs` and `outputs`: how many it
     * takes and gives, checked before it is called; 0: any number, which it checks itself. */
    tt_status (*forward_many)(tt_module *self, tt_tensor *const *inputs, int64_t input_count, tt_tensor **outputs,
                              int64_t output_count);
    int64_t inputs, outputs;

    /* Optional: release what tt_module_user(self) points to. Children, parameters and buffers are still there. */
    void (*destroy)(tt_module *self);

    /* For a module that stands for another one (DistributedDataParallel): the other one, always the same, asked when
     * the wrapper is made. Lists, state_dict and training mode are the other one's, without a prefix, and so is the
     * forward where the class has none. The wrapper keeps the other one alive, also when tt_module_free() was called
     * on it. */
    tt_module *(*wrapped)(tt_module *self);

    /* Optional, all three or none: the forward of one tensor as a chain, which pipelines cut (pipeline.h). How many
     * parts it has (less than 1: it is one part); part `part`, from 0, of what the one before gave; number `k` of the
     * modules whose parameters and buffers a part uses, NULL: no more. */
    int64_t (*part_count)(tt_module *self);
    tt_tensor *(*forward_part)(tt_module *self, int64_t part, tt_tensor *x);
    tt_module *(*part_module)(tt_module *self, int64_t part, int64_t k);
} tt_module_class;

#ifndef __cplusplus
#define TT_MODULE_CLASS(...) \
    { .size = sizeof(tt_module_class), __VA_ARGS__ }
#endif

/* Make a module of this class, in training mode, without parameters and children; the class is copied. `user` is
 * borrowed, unless the class has .destroy. NULL on failure: TT_ERR_INVALID a class without name, size or forward,
 * with some of a chain's three functions, or whose .wrapped gives NULL; TT_ERR_MEMORY. */
TT_API tt_module *tt_module_new(const tt_module_class *cls, void *user);

/* Return what tt_module_new() was given as `user`; NULL for NULL. */
TT_API void *tt_module_user(const tt_module *module);

/* Add a child under `name`, which is copied. The parent owns the child from then on; a child that can't be added for
 * its name, or for lack of memory, is freed. Parameters are listed in the order in which children were added.
 * Errors: TT_ERR_INVALID a name that is empty, has a dot, or is used already; a child that contains the parent; a NULL.
 * Where the child is NULL and an error is recorded (that of the call that could not make it), that one stays, and is
 * returned. TT_ERR_STATE the child has a parent already, or the parent is a wrapper; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_module_add_module(tt_module *parent, const char *name, tt_module *child);

/* Add a parameter: x becomes the module's and a leaf that requires a gradient (PyTorch: nn.Parameter). On failure x
 * keeps its owner. A parameter of another module may be given (tied weights): it is then both's, listed once
 * among the parameters of a tree that has both, and under both names in its state_dict. */
TT_API TT_NODISCARD tt_status tt_module_register_parameter(tt_module *module, const char *name, tt_tensor *x);

typedef struct tt_module_register_buffer_args {
    tt_module *module; /* required */
    const char *name;  /* required */
    tt_tensor *buffer; /* required: any dtype; requires no gradient */
    TT_OPTIONS;
    bool non_persistent; /* it has no place in the state_dict */
    char tt_end;         /* not an option: see base.h */
} tt_module_register_buffer_args;

/* Add a buffer: a tensor that belongs to the module's state but is not trained (PyTorch: register_buffer). The rest is
 * as for a parameter.
 *   tt_module_register_buffer(self, "running_mean", tt_zeros(TT_SHAPE(64), TT_F32)) */
TT_API TT_NODISCARD tt_status tt_module_register_buffer_with(const tt_module_register_buffer_args *args, size_t size);
#define TT_MODULE_REGISTER_BUFFER_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_module_register_buffer(module_, name_, ...)                                                               \
    tt_module_register_buffer_with(                                                                                  \
        &(tt_module_register_buffer_args){.module = (module_), .name = (name_), .buffer = __VA_ARGS__, .tt_end = 0}, \
        offsetof(tt_module_register_buffer_args, tt_end))
#endif

/* ---- forward ---- */

/* Run the module on one tensor. NULL module or x gives NULL. TT_ERR_INVALID a module that takes or gives another
 * number. */
TT_API tt_tensor *tt_module_forward(tt_module *module, tt_tensor *x);

/* tt_module_forward() with a record that holds x alone: backward runs the module again (tt_recompute(), autograd.h).
 * The module must live until then. What its forward changes, such as running statistics, changes twice.
 * PyTorch: torch.utils.checkpoint.checkpoint(module, x). */
TT_API tt_tensor *tt_module_recompute(tt_module *module, tt_tensor *x);

/* Run the module on `input_count` tensors, for `output_count`.
 *   tt_tensor *out[2];
 *   tt_module_forward_many(lstm, TT_TENSORS(x, h, c), out, 2)
 * On failure all outputs are NULL, so that an expression may go on and be checked at its end. NULL among the inputs:
 * the scope's first error, as tt_item(). TT_ERR_INVALID says how many tensors came and how many were expected. */
TT_API TT_NODISCARD tt_status tt_module_forward_many(tt_module *module, tt_tensor *const *inputs, int64_t input_count,
                                                     tt_tensor **outputs, int64_t output_count);
#ifndef __cplusplus
#define TT_TENSORS(...) \
    (tt_tensor *[]){__VA_ARGS__}, (int64_t)(sizeof((tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *))
#endif

/* Called before each forward of the module; may put other tensors into `inputs`. PyTorch: register_forward_pre_hook. */
typedef tt_status (*tt_forward_pre_hook)(tt_module *module, tt_tensor **inputs, int64_t input_count, void *user);

/* Called after each forward; may put other tensors into `outputs`. PyTorch: register_forward_hook. */
typedef tt_status (*tt_forward_hook)(tt_module *module, tt_tensor *const *inputs, int64_t input_count,
                                     tt_tensor **outputs, int64_t output_count, void *user);

typedef struct tt_module_register_forward_pre_hook_args {
    int64_t *handle;          /* required, may be NULL: receives a number that no other hook of the process has */
    tt_module *module;        /* required */
    tt_forward_pre_hook hook; /* required */
    void *user;               /* required: handed to the hook; borrowed, unless there is .destroy */
    TT_OPTIONS;
    void (*destroy)(void *user); /* release `user`: once no hook uses it any more, and on failure */
    char tt_end;                 /* not an option: see base.h */
} tt_module_register_forward_pre_hook_args;

typedef struct tt_module_register_forward_hook_args {
    int64_t *handle;      /* as above */
    tt_module *module;    /* required */
    tt_forward_hook hook; /* required */
    void *user;           /* as above */
    TT_OPTIONS;
    void (*destroy)(void *user); /* as above */
    char tt_end;                 /* not an option: see base.h */
} tt_module_register_forward_hook_args;

/* Hooks run in the order of registration and stay until removed or until the module is freed. One that fails makes the
 * forward fail, with its status. The handle is for tt_module_remove_hook(). A hook may remove hooks, itself too; what
 * it uses is then released when it has returned.
 *   tt_module_register_forward_hook(&handle, module, show_mean, NULL)
 *   tt_module_register_forward_hook(NULL, module, count, counter, .destroy = free) */
TT_API TT_NODISCARD tt_status
tt_module_register_forward_pre_hook_with(const tt_module_register_forward_pre_hook_args *args, size_t size);
TT_API TT_NODISCARD tt_status tt_module_register_forward_hook_with(const tt_module_register_forward_hook_args *args,
                                                                   size_t size);
#define TT_MODULE_REGISTER_FORWARD_PRE_HOOK_ARGS_INIT TT_ARGS_INIT
#define TT_MODULE_REGISTER_FORWARD_HOOK_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_module_register_forward_pre_hook(handle_, module_, hook_, ...)                                           \
    tt_module_register_forward_pre_hook_with(TT_ARGS(tt_module_register_forward_pre_hook_args, .handle = (handle_), \
                                                     .module = (module_), .hook = (hook_), .user = __VA_ARGS__))
#define tt_module_register_forward_hook(handle_, module_, hook_, ...)                                       \
    tt_module_register_forward_hook_with(TT_ARGS(tt_module_register_forward_hook_args, .handle = (handle_), \
                                                 .module = (module_), .hook = (hook_), .user = __VA_ARGS__))
#endif

/* TT_ERR_NOT_FOUND: the module has no such hook (any more). */
TT_API TT_NODISCARD tt_status tt_module_remove_hook(tt_module *module, int64_t handle);

/* ---- every module ---- */

/* The class's name; "?" for NULL. */
TT_API const char *tt_module_class_name(const tt_module *module);

/* Children in order of registration: how many, number i, its name (NULL if there is none), and the one of a name (NULL
 * with TT_ERR_NOT_FOUND). Those of a wrapper are the wrapped module's. */
TT_API int64_t tt_module_child_count(const tt_module *module);
TT_API tt_module *tt_module_child_at(const tt_module *module, int64_t i);
TT_API const char *tt_module_child_name(const tt_module *module, int64_t i);
TT_API tt_module *tt_module_child(const tt_module *module, const char *name);

/* Itself (its name is "") and all modules below, each before its children. A wrapper stands for the one it wraps. */
TT_API const tt_named_modules *tt_module_named_modules(tt_module *module);

/* All parameters, or buffers, with dotted names: a module's own in registration order, then those of its children,
 * as in PyTorch; a tensor that has several names comes once, under its first. All lists are valid until the tree
 * changes or is freed. */
TT_API const tt_named_tensors *tt_module_parameters(tt_module *module);
TT_API const tt_named_tensors *tt_module_buffers(tt_module *module);

/* What a checkpoint holds: for each module its parameters, then its buffers but the non-persistent ones, then its
 * children's; every name of a tensor that has several. */
TT_API const tt_named_tensors *tt_module_state_dict(tt_module *module);

/* Names that begin with `from` begin with `to` instead; either may be "". */
typedef struct tt_rename {
    const char *from;
    const char *to;
} tt_rename;

typedef struct tt_module_load_state_dict_args {
    tt_module *module;             /* required */
    const tt_named_tensors *state; /* required */
    TT_OPTIONS;
    bool not_strict;          /* entries of the state without a place, and places without an entry, are left alone */
    const tt_rename *renames; /* of the state's names; the first that fits a name counts */
    int64_t rename_count;
    char tt_end; /* not an option: see base.h */
} tt_module_load_state_dict_args;

/* Copy values into the module's tensors, by name. Names may carry a leading "module." (what PyTorch's DDP adds).
 *   tt_module_load_state_dict(model, file, .renames = (tt_rename[]){{"transformer.", ""}}, .rename_count = 1)
 * A tensor that has several names (tied weights) needs an entry under one of them alone, as transformers saves it.
 * All or nothing; the text names all that is wrong, the status is that of the first: TT_ERR_NOT_FOUND an entry is
 * missing or unexpected (not with .not_strict), TT_ERR_SHAPE and TT_ERR_DTYPE one differs, TT_ERR_INVALID an entry
 * comes twice, or two of one tensor differ in their values. */
TT_API TT_NODISCARD tt_status tt_module_load_state_dict_with(const tt_module_load_state_dict_args *args, size_t size);
#ifndef __cplusplus
#define tt_module_load_state_dict(module_, ...) \
    tt_module_load_state_dict_with(TT_ARGS(tt_module_load_state_dict_args, .module = (module_), .state = __VA_ARGS__))
#endif
#define TT_MODULE_LOAD_STATE_DICT_ARGS_INIT TT_ARGS_INIT

/* Training and evaluation mode, of the whole tree below; a new module is in training mode. Only modules that behave
 * differently ask for it, by tt_module_training(). */
TT_API void tt_module_train(tt_module *module);
TT_API void tt_module_eval(tt_module *module);

/* Is the module in training mode? False for NULL. */
TT_API bool tt_module_training(const tt_module *module);

/* tt_requires_grad_() on every parameter: false freezes the module. PyTorch: Module.requires_grad_. */
TT_API TT_NODISCARD tt_status tt_module_requires_grad_(tt_module *module, bool requires_grad);

/* Convert floating parameters, with their gradients, and floating buffers to `dtype`, in place: the tensors stay the
 * same objects. Convert before making optimizers and wrappers. All or nothing. Errors: TT_ERR_DTYPE not a floating
 * type; TT_ERR_STATE a module that is wrapped, or a tensor that a recorded operator still needs or another tree
 * shares. */
TT_API TT_NODISCARD tt_status tt_module_to(tt_module *module, tt_dtype dtype);

/* Move all parameters and buffers to another device, as tt_module_to() converts them. Errors: TT_ERR_MEMORY, and those
 * of tt_module_to() except TT_ERR_DTYPE. PyTorch: Module.to(device). */
TT_API TT_NODISCARD tt_status tt_module_to_device(tt_module *module, const tt_device *device);

/* Free a tree from its root (a module that has a parent is ignored, with an error recorded). A module that another one
 * wraps is kept until its last wrapper is freed, so the two may be freed in any order; freeing it twice meanwhile
 * is TT_ERR_STATE. NULL is allowed. */
TT_API void tt_module_free(tt_module *module);

TT_END_DECLS

#include <tutti/layers.h>

#endif
