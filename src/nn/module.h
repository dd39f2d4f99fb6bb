/* The inside of a module.
 *
 * Life. A module is counted: one reference is its owner's (the caller or its parent), the others are its wrappers'. A
 * registered tensor has one reference for each of its entries, in all modules.
 *
 * Lists are made when asked for, and kept until the tree changes. A change drops the lists of the module, of all
 * modules above it, and of all that wrap one of these. */
#ifndef TT_NN_MODULE_H
#define TT_NN_MODULE_H

#include "autograd/pointer_map.h"
#include "base/hash.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"

#include <tutti/nn.h>

/* Lists of names made from a module's tree. */
typedef enum tt__list_kind {
    TT__LIST_PARAMETERS,
    TT__LIST_BUFFERS,
    TT__LIST_STATE,
    TT__LIST_MODULES,
    TT__LIST_KINDS
} tt__list_kind;

typedef struct tt__module_list {
    _Atomic bool made;
    size_t count, room;
    tt__pointer_map seen; /* while the list is made: the tensors it has */
    char **names;
    union {
        void **items;
        tt_tensor **tensors;
        tt_module **modules;
    };
    union { /* what the caller sees */
        tt_named_tensors as_tensors;
        tt_named_modules as_modules;
    };
} tt__module_list;

/* A parameter or a buffer. */
typedef struct tt__module_tensor {
    char *name;
    tt_tensor *tensor;
    bool is_buffer;
    bool non_persistent;
} tt__module_tensor;

typedef struct tt__module_hook {
    int64_t handle;          /* 0: removed while hooks were running */
    tt_forward_pre_hook pre; /* one of the two is NULL */
    tt_forward_hook post;
    void *user;
    void (*destroy)(void *user); /* NULL: `user` is borrowed */
} tt__module_hook;

/* How tt_amp_initialize() changed a module's forward: inputs are cast, autocast is on, and results are cast to f32. */
typedef struct tt__module_amp {
    bool on, casts_inputs, autocasts;
    tt_dtype dtype;
} tt__module_amp;

typedef struct tt__module_child {
    char *name;
    tt_module *module;
} tt__module_child;

struct tt_module {
    tt_module_class cls; /* a copy */
    const tt_module_class *identity;
    void *user;
    int refs;
    bool freed; /* tt_module_free() was called: only wrappers hold it */
    bool training;
    bool of_users; /* its class is not the library's */
    tt__module_amp amp;
    tt_module *parent;
    tt_module *wrapped;                 /* NULL: no wrapper */
    tt_module *wrappers, *next_wrapper; /* those that wrap this one; its place among the wrappers of `wrapped` */
    tt__module_child *children;
    size_t child_count;
    tt__module_tensor *tensors; /* in the order of registration */
    size_t tensor_count;
    tt__name_map names; /* of all children and tensors, once there are many */
    tt__module_hook *hooks;
    size_t hook_count;
    _Atomic int hooks_running; /* depth of forwards that are inside hooks */
    tt__module_list lists[TT__LIST_KINDS];
};

/* tt_module_new() for a class of the library's. */
tt_module *tt__module_new(const tt_module_class *cls, void *user);

/* `module`, or, of a wrapper, what is inside all wrappings. */
static inline tt_module *tt__module_unwrapped(const tt_module *module) {
    while (module && module->wrapped)
        module = module->wrapped;
    return (tt_module *)(uintptr_t)module;
}

/* Call `visit` for each module of the tree, wrappers and wrapped ones too, parents first; stops at the first
 * failure. */
tt_status tt__module_walk(tt_module *module, tt_status (*visit)(tt_module *module, void *user), void *user);

/* Release the hook's `user`, if the hook owns it. */
static inline void tt__module_hook_release(const tt__module_hook *hook) {
    if (hook->destroy)
        hook->destroy(hook->user);
}

/* Would tt_module_load_state_dict(), without options, take this state? Returns its error if not. Changes nothing. */
tt_status tt__module_check_state(tt_module *module, const tt_named_tensors *state);

/* tt_module_to() that leaves batch norms as they are. */
tt_status tt__module_to_but_batch_norm(tt_module *module, tt_dtype dtype);

/* What tt__module_set_amp() has set; off until then. */
tt__module_amp tt__module_amp_of(const tt_module *module);

/* Set how the module's forward casts from now on. */
void tt__module_set_amp(tt_module *module, tt__module_amp amp);

/* The class a module was made with: how a layer above recognises its own. */
const tt_module_class *tt__module_class(const tt_module *module);

/* Empty a list. */
void tt__module_list_drop(tt__module_list *list);

/* This thread's place among threads that run one module at once, each on a part of the batch (DataParallel): number
 * `index` of `count`; 0 of 1 in a thread that runs no replica. Only replica 0 changes running statistics. */
typedef struct tt__replica {
    int index, count;
} tt__replica;

tt__replica tt__replica_of_thread(void);

/* Set it for this thread. Returns what it was. */
tt__replica tt__replica_set(tt__replica replica);

/* How many parts the forward has. 1 for a module that can't be cut, because its class has no parts, or because hooks or
 * casts surround its whole forward. */
int64_t tt__chain_length(tt_module *module);

/* Run part i of the forward on the result of part i - 1. */
tt_tensor *tt__chain_forward(tt_module *module, int64_t i, tt_tensor *x);

/* Number k of the modules that part i uses; NULL: no more. */
tt_module *tt__chain_module(tt_module *module, int64_t i, int64_t k);

#endif
