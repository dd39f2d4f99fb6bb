/* Autocast: which operators compute in which floating type, and the casts.
 *
 * A cast is a recorded call like any other, so backward brings the gradient of a cast leaf back to the leaf's own type.
 * The lower copy of a leaf is kept until the thread's outermost autocast ends, or the leaf is overwritten; each use of
 * it is a new tensor over the copy, with a record of its own.
 *
 * A segment that runs again in backward (tt_recompute()) runs under the state in which it was recorded. */

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "tensor/core/pool.h"

#include <string.h>

/* ---- which operator computes in which type ---- */

typedef enum policy {
    AS_THEY_ARE, /* no casts: also operators that are not in the table */
    LOWER,       /* the type that autocast was given */
    SINGLE,      /* f32 */
    WIDEST,      /* the widest type among the inputs */
    FIRST        /* the first input's, which is changed in place */
} policy;

/* As PyTorch 1.13's autocast on the CPU; scaled_dot_product_attention, which 1.13 lacks, is as in later versions.
 * PyTorch promotes mixed types in every operator; here only those do it that operators.def lists as WIDEST. */
static const struct {
    const char *name;
    policy policy;
} policies[] = {
#define LISTED_AS_THEY_ARE(name)
#define LISTED_LOWER(name) {"tt_" #name, LOWER},
#define LISTED_SINGLE(name) {"tt_" #name, SINGLE},
#define LISTED_WIDEST(name) {"tt_" #name, WIDEST},
#define LISTED_FIRST(name) {"tt_" #name, FIRST},
#define OPERATOR(name, policy) LISTED_##policy(name)
#include "autograd/operators.def"
};

static policy policy_of(const char *who) {
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(policies[i].name, who))
            return policies[i].policy;
    return AS_THEY_ARE;
}

/* ---- the thread's state ---- */

/* The copy of a leaf in another type, and what it was made of. */
typedef struct cast_copy {
    tt__storage *source; /* a reference */
    const void *data;    /* where the leaf begins in it */
    uint32_t version;
    tt_tensor *copy; /* a reference */
} cast_copy;

typedef struct autocast_thread {
    bool on, no_cache;
    tt_dtype dtype;
    int depth; /* how many autocasts are open */
    cast_copy *copies;
    tt_tensor **loose; /* casts that no scope ends */
    int copy_count, copy_room, loose_count, loose_room, last;
} autocast_thread;

static _Thread_local autocast_thread autocast;

/* A state as one number: what tt_autocast_end() takes. */
static int state_pack(void) {
    return autocast.on ? 1 | (autocast.no_cache ? 2 : 0) | (int)((unsigned)autocast.dtype << 2) : 0;
}

static void state_unpack(int state) {
    autocast.on = state & 1;
    autocast.no_cache = state & 2;
    autocast.dtype = (tt_dtype)((unsigned)state >> 2);
}

static void copy_drop(cast_copy *c) {
    tt__tensor_unref(c->copy);
    tt__storage_unref(c->source);
}

void tt_clear_autocast_cache(void) {
    for (int i = 0; i < autocast.copy_count; i++)
        copy_drop(&autocast.copies[i]);
    tt__pool_free(autocast.copies);
    autocast.copies = NULL;
    autocast.copy_count = autocast.copy_room = autocast.last = 0;
}

static void loose_free(void) {
    for (int i = 0; i < autocast.loose_count; i++)
        tt__abandon(autocast.loose[i]);
    tt__pool_free(autocast.loose);
    autocast.loose = NULL;
    autocast.loose_count = autocast.loose_room = 0;
}

int tt__autocast_state(void) { return state_pack(); }

int tt__autocast_again(int state) {
    int before = state_pack();
    autocast.depth++;
    state_unpack(state);
    return before;
}

int tt_autocast_begin_with(const tt_autocast_begin_args *args, size_t size) {
    tt_autocast_begin_args a;
    TT__ARGS_COPY(a, args, size);
    int before = state_pack();
    autocast.depth++;
    autocast.on = !a.disabled;
    autocast.no_cache = a.no_cache;
    autocast.dtype = a.dtype;
    return before;
}

void tt_autocast_end(int before) {
    state_unpack(before);
    if (autocast.depth > 0 && --autocast.depth == 0) {
        tt_clear_autocast_cache();
        loose_free();
    }
}

void tt_autocast_cleanup(const int *before) { tt_autocast_end(before ? *before : 0); }

bool tt_is_autocast_enabled(void) { return autocast.on; }

tt_dtype tt_get_autocast_dtype(void) { return autocast.on ? autocast.dtype : TT_F32; }

/* ---- casts ---- */

/* Write the gradient in the input's own type. */
static tt_status autocast_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__copy_out(node->op->name, dx, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator autocast_op = {.name = "tt_autocast", .backward = autocast_backward};

/* Make room for one more element of `size` bytes in a list of the pool's memory. */
static void *grown(void *list, int count, int *room, size_t size) {
    if (count < *room)
        return list;
    int more = *room ? 2 * *room : 64;
    void *larger = tt__pool_alloc((size_t)more * size);
    if (!larger)
        return NULL;
    if (count)
        memcpy(larger, list, (size_t)count * size);
    tt__pool_free(list);
    *room = more;
    return larger;
}

/* Let a cast end with autocast if it was made while no scope is open: it would belong to the caller, who doesn't know
 * of it. */
static tt_tensor *end_with_autocast(const char *who, tt_tensor *y) {
    if (!y || y->owner != TT__OWNER_CALLER)
        return y;
    tt_tensor **list = grown(autocast.loose, autocast.loose_count, &autocast.loose_room, sizeof *list);
    if (!list) {
        tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a cast", who);
        return tt__abandon(y);
    }
    autocast.loose = list;
    return list[autocast.loose_count++] = tt_keep(y);
}

static bool is_copy_of(const cast_copy *c, const tt_tensor *x, tt_dtype dtype) {
    return c->source == x->storage && c->data == x->data && c->copy->dtype == dtype &&
           tt__shape_equal(&c->copy->shape, &x->shape);
}

/* Find the copy of a leaf. Search from the last one found on, because each step's calls come in the same order. */
static cast_copy *copy_find(const tt_tensor *x, tt_dtype dtype) {
    for (int i = 1; i <= autocast.copy_count; i++) {
        int at = (autocast.last + i) % autocast.copy_count;
        if (is_copy_of(&autocast.copies[at], x, dtype)) {
            autocast.last = at;
            return &autocast.copies[at];
        }
    }
    return NULL;
}

/* Keep y, the copy of x, in `place`, that of an outdated copy, or (NULL) in a new place. Without memory y is not
 * kept. */
static void copy_keep(const char *who, cast_copy *place, const tt_tensor *x, const tt_tensor *y) {
    cast_copy *list =
        place ? autocast.copies : grown(autocast.copies, autocast.copy_count, &autocast.copy_room, sizeof *list);
    if (!list)
        return;
    autocast.copies = list;
    tt_tensor *copy = tt__tensor_detached(who, y);
    if (!copy)
        return;
    if (place)
        copy_drop(place);
    else
        place = &list[autocast.last = autocast.copy_count++];
    *place = (cast_copy){tt__storage_ref(x->storage), x->data, atomic_load(&x->storage->version), copy};
}

/* Make the copy of a leaf, or another tensor over the copy that exists. */
static tt_tensor *leaf_copy(const char *who, tt_tensor *x, tt_dtype dtype) {
    cast_copy *found = copy_find(x, dtype);
    if (found && found->version == atomic_load(&x->storage->version))
        return tt__tensor_alias(who, found->copy, found->copy->shape, found->copy->stride, 0);
    tt_tensor *y = tt__to(who, x, dtype);
    if (y)
        copy_keep(who, found, x, y);
    return y;
}

static tt_tensor *cast_recorded(const char *who, tt_tensor *x, tt_dtype dtype) {
    bool kept = !autocast.no_cache && x->history && x->history->is_leaf && x->dtype == TT_F32;
    tt_tensor *y = kept ? leaf_copy(who, x, dtype) : tt__to(who, x, dtype);
    return end_with_autocast(who, tt__recorded(&autocast_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE));
}

/* ---- what an operator's inputs become ---- */

/* The narrowest type that holds both; f16 and bf16 have none of 16 bits. */
static tt_dtype wider(tt_dtype a, tt_dtype b) { return a == b ? a : a == TT_F64 || b == TT_F64 ? TT_F64 : TT_F32; }

/* Find the type for this call: of `x`, those that are floats. False: none is to be cast. */
static bool autocast_type(policy policy, int64_t n, tt_tensor *const *x, tt_dtype *dtype) {
    bool found = false;
    for (int64_t i = 0; i < n; i++) {
        if (!x[i] || !tt__is_float(x[i]->dtype))
            continue;
        *dtype = !found ? x[i]->dtype : policy == FIRST ? *dtype : wider(*dtype, x[i]->dtype);
        found = true;
    }
    if (policy == LOWER || policy == SINGLE)
        *dtype = policy == LOWER ? autocast.dtype : TT_F32;
    return found;
}

/* Is x to be cast? f64 is the program's choice: it stays, unless the inputs' types decide. */
static bool is_cast(const tt_tensor *x, policy policy, tt_dtype dtype) {
    return x && tt__is_float(x->dtype) && x->dtype != dtype &&
           (x->dtype != TT_F64 || (policy != LOWER && policy != SINGLE));
}

static bool cast_all(const char *who, policy policy, int64_t n, tt_tensor **x) {
    tt_dtype dtype = TT_F32;
    for (int64_t i = 0; i < n; i++)
        if (x[i] && !tt__tensor_check(who, x[i]))
            return false;
    if (autocast.dtype != TT_BF16 && autocast.dtype != TT_F16) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: autocast was begun with %s; expected TT_BF16 or TT_F16", who,
                        tt_dtype_name(autocast.dtype));
        return false;
    }
    if (!autocast_type(policy, n, x, &dtype))
        return true;
    for (int64_t i = 0; i < n; i++)
        if (is_cast(x[i], policy, dtype) && !(x[i] = cast_recorded(who, x[i], dtype)))
            return false;
    return true;
}

bool tt__autocast(const char *who, int n, tt_tensor **const *at) {
    enum { MOST = 8 };
    tt_tensor *x[MOST];
    policy policy = autocast.on ? policy_of(who) : AS_THEY_ARE;
    if (policy == AS_THEY_ARE || n > MOST)
        return true;
    for (int i = 0; i < n; i++)
        x[i] = *at[i];
    bool done = cast_all(who, policy, n, x);
    for (int i = 0; i < n && done; i++)
        *at[i] = x[i];
    return done;
}

tt_tensor *const *tt__autocast_list(const char *who, int64_t n, tt_tensor *const *x) {
    policy policy = autocast.on ? policy_of(who) : AS_THEY_ARE;
    if (policy == AS_THEY_ARE)
        return x;
    tt_tensor **list = tt__pool_alloc((size_t)n * sizeof *list);
    if (!list)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a list of %lld", who, (long long)n);
    memcpy(list, x, (size_t)n * sizeof *list);
    if (cast_all(who, policy, n, list))
        return list;
    tt__pool_free(list);
    return NULL;
}

void tt__autocast_list_done(tt_tensor *const *list, tt_tensor *const *x) {
    if (list != x)
        tt__pool_free((void *)list);
}
