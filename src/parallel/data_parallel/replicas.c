/* Replicas. All run the same module with the same parameters, so nothing is copied. Each has a scope of its own for the
 * tensors that it makes. The whole is recorded as one call:
 *
 *   forward    cut x -> [thread r: y_r = module(x_r), recorded] -> put y_r together
 *   backward   cut dy -> [thread r: its pass; gradients of parameters and x_r are captured]
 *              -> [any thread: sum of a parameter's gradients, replica 0's first] -> give
 *
 * A replica's pass begins at a record that joins its results (join_op), whose backward hands them their parts of dy.
 * Sums are in the order of replicas, so the bits don't depend on which thread is faster. A thread frees its own memory,
 * which it then uses again. */
#include "parallel/data_parallel/replicas.h"

#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "autograd/reach.h"
#include "autograd/record.h"
#include "base/error.h"
#include "base/hash.h"
#include "nn/module.h"
#include "tensor/core/pool.h"
#include "tensor/random/generator.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

static const char who[] = "tt_data_parallel";

/* What one replica has. */
typedef struct replica_part {
    const tt_device *device; /* where it runs; NULL: where its inputs lie */
    tt_tensor **leaves;  /* (own_count of the run): a copy's parameters, referenced; NULL: it runs the module itself */
    int64_t begin, rows; /* of dimension 0 of the inputs */
    tt_scope *scope;
    tt_tensor **in, **out;
    int64_t *out_begin; /* where its results lie in dimension 0 of the whole ones */
    tt_tensor *joined;  /* where its backward pass begins; NULL: nothing in it requires a gradient */
    tt_tensor **grads;  /* in a backward: by the number of the whole call's input */
    tt_status status;
    tt__saved_error error;
} replica_part;

/* A call. If it is recorded, the record owns it. */
typedef struct replica_run {
    tt__replica_crew *crew;
    int parts;
    int64_t in_count, out_count, slots; /* slots: inputs, parameters, other leaves that replicas share */
    uint64_t begun;                     /* the newest record before the call */
    tt_module *module;                  /* in forward only */
    const tt__module_copies *copies;    /* borrowed for the call; NULL: the program gave none */
    int64_t own_count;                  /* parameters of the module */
    tt_tensor *const *in;               /* in forward only */
    bool records;
    int autocast;
    uint64_t seed; /* of the replicas' draws */
    replica_part *part;
    bool *cut;         /* (in_count): is the input cut, or goes to all as it is? */
    tt_tensor **lists; /* memory of all parts' in and out */
    int64_t *begins;   /* memory of all parts' out_begin */
    /* Of a backward pass: */
    tt_node *node;
    tt_tensor **dy;   /* (out_count); NULL: none */
    tt_tensor **dest; /* (slots): where sums go; NULL: nobody has any */
    bool *wanted;     /* (slots) */
    bool keeps;       /* records are walked again */
    _Atomic int64_t next_slot;
} replica_run;

/* Zeros in recycled memory, so that steady steps allocate nothing. */
static void *zeroed(size_t count, size_t size) {
    void *p = tt__pool_alloc(count * size);
    return p ? memset(p, 0, count * size) : NULL;
}

static void run_free(replica_run *run) {
    if (!run)
        return;
    for (int r = 0; run->part && r < run->parts; r++) {
        tt__crew_end_scope(run->crew, r, run->part[r].scope);
        tt__copies_drop_leaves(run->part[r].leaves, run->own_count);
    }
    tt__replica_crew_unref(run->crew);
    tt__pool_free(run->part);
    tt__pool_free(run->lists);
    tt__pool_free(run->begins);
    tt__pool_free(run->cut);
    tt__pool_free(run);
}

/* Make the error of the first replica that failed this thread's. TT_OK: none failed. */
static tt_status first_failure(const replica_run *run) {
    for (int r = 0; r < run->parts; r++)
        if (run->part[r].status) {
            tt__error_restore(&run->part[r].error);
            return tt__fail_prefix("%s: replica %d of %d", who, r, run->parts);
        }
    return TT_OK;
}

static void note_status(replica_part *p, tt_status status) {
    p->status = status;
    if (status)
        tt__error_save(&p->error);
}

/* ---- parts ---- */

int64_t tt__chunk_count(int64_t n, int64_t replicas, int64_t *rows) {
    *rows = (n + replicas - 1) / replicas;
    return n ? (n + *rows - 1) / *rows : 1;
}

/* A tensor without dimensions goes to all replicas. */
static bool is_cut(const tt_tensor *x) { return x->shape.ndim > 0; }

static tt_status check_batch(tt_tensor *const *in, int64_t in_count, const tt_tensor **first) {
    *first = NULL;
    for (int64_t i = 0; i < in_count; i++) {
        if (!is_cut(in[i]))
            continue;
        if (*first && (*first)->shape.dim[0] != in[i]->shape.dim[0])
            return tt__fail(TT_ERR_SHAPE,
                            "%s: expected inputs of one size in dimension 0, in which they are cut, got %s and %s", who,
                            TT__DESCRIBE(*first), TT__DESCRIBE(in[i]));
        *first = *first ? *first : in[i];
    }
    return TT_OK;
}

static replica_run *run_new(tt__replica_crew *crew, int parts, int64_t rows, int64_t n, int64_t in_count,
                            int64_t out_count) {
    replica_run *run = zeroed(1, sizeof *run);
    if (!run)
        return NULL;
    run->crew = tt__replica_crew_ref(crew);
    run->parts = parts;
    run->in_count = in_count;
    run->out_count = out_count;
    run->part = zeroed((size_t)parts, sizeof *run->part);
    run->lists = zeroed((size_t)parts * (size_t)(in_count + out_count) + 1, sizeof *run->lists);
    run->begins = zeroed((size_t)parts * (size_t)out_count + 1, sizeof *run->begins);
    run->cut = zeroed((size_t)in_count + 1, sizeof *run->cut);
    if (!run->part || !run->lists || !run->begins || !run->cut) {
        run_free(run);
        return NULL;
    }
    for (int r = 0; r < parts; r++) {
        replica_part *p = &run->part[r];
        p->begin = r * rows;
        p->rows = r + 1 < parts ? rows : n - p->begin;
        p->in = run->lists + r * (in_count + out_count);
        p->out = p->in + in_count;
        p->out_begin = run->begins + r * out_count;
    }
    return run;
}

/* Note each copy's device and leaves. */
static tt_status use_copies(replica_run *run) {
    for (int r = 0; run->copies && r < run->parts; r++) {
        replica_part *p = &run->part[r];
        p->device = tt__copies_device(run->copies, r);
        if (r > 0)
            TT__TRY(tt__copies_take_leaves(run->copies, r, &p->leaves));
    }
    return TT_OK;
}

/* x on this device; `device` NULL: x itself. NULL for NULL. */
static tt_tensor *brought(const tt_device *device, tt_tensor *x) {
    return !x || !device || tt__device_of(x) == device ? x : tt__to_device(who, x, device);
}

/* ---- the join */

typedef struct join_state {
    const replica_run *run;
    int part;
} join_state;

/* View the replica's part of result number k, or of its gradient. */
static tt_tensor *view_of_part(const replica_part *p, int64_t k, const tt_tensor *whole) {
    const tt_tensor *like = p->out[k];
    return tt__tensor_alias(who, whole, like->shape, whole->stride, p->out_begin[k] * whole->stride[0]);
}

static tt_tensor *gradient_of_part(const replica_part *p, int64_t k, const tt_tensor *whole) {
    tt_tensor *part = view_of_part(p, k, whole), *there = brought(tt__device_of(p->out[k]), part);
    if (there != part)
        tt__abandon(part);
    return there;
}

static tt_status join_backward(tt_node *node) {
    const join_state *s = tt__state(node);
    for (int k = 0; k < node->inputs; k++)
        if (s->run->dy[k] && tt__grad_wanted(node, k))
            TT__TRY(tt__grad_give(node, k, gradient_of_part(&s->run->part[s->part], k, s->run->dy[k])));
    return TT_OK;
}

static const tt__operator join_op = {.name = who, .backward = join_backward};

static tt_status join_results(const replica_run *run, int r) {
    replica_part *p = &run->part[r];
    const join_state s = {run, r};
    if (!run->records || !tt__wants_grad((int)run->out_count, p->out))
        return TT_OK;
    tt_tensor *y = tt_zeros(TT_SCALAR, TT_F32);
    p->joined = tt__recorded(&join_op, y, (int)run->out_count, p->out, TT__NO_SAVES, TT__STATE(s));
    return p->joined ? TT_OK : tt_last_status();
}

/* ---- forward, in the replicas' threads */

static tt_status cut_inputs(const replica_run *run, replica_part *p) {
    for (int64_t i = 0; i < run->in_count; i++) {
        const tt_tensor *x = run->in[i];
        p->in[i] = brought(p->device, is_cut(x) ? tt__narrow(who, x, 0, p->begin, p->rows)
                                                : tt__tensor_alias(who, x, x->shape, x->stride, 0));
        if (!p->in[i] || (run->records && x->requires_grad && !tt_requires_grad_(p->in[i], true)))
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status forward_of(const replica_run *run, int r) {
    replica_part *p = &run->part[r];
    TT__TRY(cut_inputs(run, p));
    tt_module *module = run->copies ? run->copies->modules[r] : run->module;
    TT__TRY(tt_module_forward_many(module, p->in, run->in_count, p->out, run->out_count));
    return join_results(run, r);
}

/* Run replica r with the caller's modes. Replica 0 draws from the caller's generator, as one device would. The others
 * have generators seeded from its state, so that a checkpoint need not hold theirs. */
static tt_status forward_in_modes(const replica_run *run, int r) {
    bool no_grad = run->records ? tt_enable_grad_begin() : tt_no_grad_begin();
    int autocast = tt__autocast_again(run->autocast);
    tt_generator *generator = tt_default_generator(), before = *generator;
    if (r > 0)
        tt__generator_init(generator, run->seed + (uint64_t)r * UINT64_C(0x9e3779b9));
    tt_status status = forward_of(run, r);
    if (r > 0)
        *generator = before;
    tt_autocast_end(autocast);
    tt_no_grad_end(no_grad);
    return status;
}

static void forward_task(void *user, int r) {
    replica_run *run = user;
    replica_part *p = &run->part[r];
    p->scope = tt_scope_new();
    tt_status status = p->scope ? tt_scope_enter(p->scope) : tt_last_status();
    if (!status) {
        status = forward_in_modes(run, r);
        note_status(p, status);
        tt_ignore(tt_scope_leave(p->scope));
    } else {
        note_status(p, status);
    }
}

/* ---- backward, in the replicas' threads */

/* The leaf of slot s in a replica's pass. */
static const tt_tensor *leaf_of_slot(const replica_run *run, const replica_part *p, int64_t s) {
    int64_t own = s - run->in_count;
    if (own < 0)
        return p->in[s];
    return p->leaves && own < run->own_count ? p->leaves[own] : run->node->edge[s].leaf;
}

static tt_status capture_slots(const replica_run *run, const replica_part *p, tt__capture *capture) {
    bool put = true;
    for (int64_t s = 0; s < run->slots && put; s++) {
        const tt_tensor *leaf = leaf_of_slot(run, p, s);
        if (leaf && leaf->requires_grad)
            put = tt__pointer_map_put(&capture->at, leaf, s);
    }
    return put ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of gradients", who);
}

static void backward_task(void *user, int r) {
    replica_run *run = user;
    replica_part *p = &run->part[r];
    tt__capture capture = {.wanted = run->wanted, .grads = p->grads};
    p->status = TT_OK;
    if (p->joined) {
        tt_status status = capture_slots(run, p, &capture);
        note_status(p, status ? status : tt__backward_captured(p->joined, run->keeps, &capture));
        tt__pointer_map_free(&capture.at);
    }
    if (!run->keeps) {
        tt_scope_free(p->scope);
        p->scope = NULL;
        p->joined = NULL;
    }
}

/* Write the gradient of an input that was cut: each replica's part, zeros where it has none. */
static tt_status write_parts(const replica_run *run, int64_t s) {
    for (int r = 0; r < run->parts; r++) {
        const replica_part *p = &run->part[r];
        tt_tensor *to = tt__narrow(who, run->dest[s], 0, p->begin, p->rows);
        if (!to)
            return tt_last_status();
        TT__TRY(p->grads[s] ? tt__copy_out(who, to, p->grads[s]) : tt__fill_out(who, to, 0));
    }
    return TT_OK;
}

/* Write the sum of the replicas' gradients. */
static tt_status write_sum(const replica_run *run, int64_t s) {
    const tt_tensor *first = NULL;
    bool summed = false;
    for (int r = 0; r < run->parts; r++) {
        const tt_tensor *g = brought(tt__device_of(run->dest[s]), run->part[r].grads[s]);
        if (!g && run->part[r].grads[s])
            return tt_last_status();
        if (!g)
            continue;
        if (first)
            TT__TRY(tt__add_out(who, run->dest[s], summed ? run->dest[s] : first, g));
        summed = first != NULL;
        first = first ? first : g;
    }
    return summed ? TT_OK : tt__copy_out(who, run->dest[s], first);
}

/* Sum gradients; each thread that is free takes the next slot. */
static void sum_task(void *user, int r) {
    replica_run *run = user;
    tt_status status = TT_OK;
    int scope = tt_scope_begin();
    bool no_grad = tt_no_grad_begin();
    for (int64_t s; !status && (s = atomic_fetch_add(&run->next_slot, 1)) < run->slots;)
        if (run->dest[s])
            status = s < run->in_count && run->cut[s] ? write_parts(run, s) : write_sum(run, s);
    note_status(&run->part[r], status);
    tt_no_grad_end(no_grad);
    tt_scope_end(scope);
}

static void drop_task(void *user, int r) {
    replica_run *run = user;
    for (int64_t s = 0; s < run->slots; s++)
        tt__tensor_unref(run->part[r].grads[s]);
}

/* ---- backward, in the caller's */

/* Find where the sums go. */
static tt_status choose_dests(const replica_run *run) {
    for (int64_t s = 0; s < run->slots; s++) {
        bool some = false;
        for (int r = 0; r < run->parts; r++)
            some |= run->part[r].grads[s] != NULL;
        if (some && tt__grad_wanted(run->node, (int)s) && !(run->dest[s] = tt__grad_dest(run->node, (int)s)))
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status walk_replicas(replica_run *run) {
    tt__replica_crew_run(run->crew, run->parts, backward_task, run);
    TT__TRY(first_failure(run));
    TT__TRY(choose_dests(run));
    atomic_store(&run->next_slot, 0);
    tt__replica_crew_run(run->crew, run->parts, sum_task, run);
    TT__TRY(first_failure(run));
    for (int64_t s = 0; s < run->slots; s++)
        if (run->dest[s])
            TT__TRY(tt__grad_give(run->node, (int)s, run->dest[s]));
    return TT_OK;
}

static tt_status replicas_backward(tt_node *node) {
    replica_run *run = *(replica_run **)tt__state(node);
    int64_t slots = run->slots, lists = run->parts + 1;
    tt_tensor **room = zeroed((size_t)(slots * lists + run->out_count), sizeof *room);
    bool *wanted = zeroed((size_t)slots + 1, sizeof *wanted);
    tt_status status = room && wanted ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for lists of gradients", who);
    if (!status) {
        run->node = node;
        run->wanted = wanted;
        run->dest = room;
        run->dy = room + slots * lists;
        run->keeps = tt__node_is_kept(node);
        for (int64_t s = 0; s < slots; s++)
            wanted[s] = tt__grad_wanted(node, (int)s);
        for (int64_t k = 0; k < run->out_count; k++)
            run->dy[k] = tt__grad_of(node, (int)k);
        for (int r = 0; r < run->parts; r++)
            run->part[r].grads = room + slots * (r + 1);
        status = walk_replicas(run);
        tt__replica_crew_run(run->crew, run->parts, drop_task, run);
    }
    tt__pool_free(wanted);
    tt__pool_free(room);
    return status;
}

static void replicas_end(void *state) { run_free(*(replica_run **)state); }

static const tt__operator replicas_op = {.name = who, .backward = replicas_backward, .destroy = replicas_end};

/* ---- forward, in the caller's thread */

/* Check that results fit together. */
static tt_status check_results(const replica_run *run, int64_t k) {
    const tt_tensor *first = run->part[0].out[k];
    for (int r = 1; r < run->parts; r++) {
        const tt_tensor *y = run->part[r].out[k];
        bool fits = y->dtype == first->dtype && y->shape.ndim == first->shape.ndim;
        for (int d = 1; fits && d < y->shape.ndim; d++)
            fits = y->shape.dim[d] == first->shape.dim[d];
        if (!fits)
            return tt__fail(TT_ERR_SHAPE,
                            "%s: expected results that differ in dimension 0 alone, got %s of replica 0 and %s of "
                            "replica %d",
                            who, TT__DESCRIBE(first), TT__DESCRIBE(y), r);
    }
    return TT_OK;
}

/* Put the replicas' results number k together: scalars become a vector. */
static tt_tensor *put_together(const replica_run *run, int64_t k) {
    const tt_tensor *first = run->part[0].out[k];
    tt_shape shape = first->shape;
    int64_t rows = 0;
    if (check_results(run, k))
        return NULL;
    for (int r = 0; r < run->parts; r++) {
        run->part[r].out_begin[k] = rows;
        rows += is_cut(first) ? run->part[r].out[k]->shape.dim[0] : 1;
    }
    shape.ndim = is_cut(first) ? shape.ndim : 1;
    shape.dim[0] = rows;
    tt_tensor *y = tt__empty_beside(who, first, shape, first->dtype);
    for (int r = 0; r < run->parts && y; r++) {
        tt_tensor *to = view_of_part(&run->part[r], k, y);
        y = TT__MADE(who, y, to ? tt__copy_out(who, to, run->part[r].out[k]) : tt_last_status());
        tt__abandon(to);
    }
    return y;
}

static bool has_graph(const replica_run *run, int64_t k) {
    for (int r = 0; r < run->parts; r++)
        if (run->part[r].joined && tt_requires_grad(run->part[r].out[k]))
            return true;
    return false;
}

static bool is_own_leaf(const replica_run *run, const replica_part *p, const tt_tensor *leaf) {
    for (int64_t i = 0; i < run->in_count; i++)
        if (leaf == p->in[i])
            return true;
    for (int64_t i = 0; p->leaves && i < run->own_count; i++)
        if (leaf == p->leaves[i])
            return true;
    return leaf->entry.scope == p->scope || !tt__leaf_of(leaf);
}

/* Add leaves that a replica's graph shares with others: tensors that a forward function uses but isn't given. */
static tt_status add_shared_leaves(const replica_run *run, const replica_part *p, const tt__reach *reach,
                                   tt__replica_slots *l) {
    for (int64_t i = 0; i < reach->node_count; i++)
        if (reach->nodes[i].node->number <= run->begun)
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: the module uses a result of %s that was recorded before its forward, whose record "
                            "replicas can't share; give it as an input",
                            who, reach->nodes[i].node->op->name);
    for (int64_t i = 0; i < reach->leaf_count; i++) {
        tt_tensor *leaf = reach->leaves[i].tensor;
        if (tt__pointer_map_get(&l->at, leaf) < 0 && !is_own_leaf(run, p, leaf))
            TT__TRY(tt__replica_slot_add(l, leaf, false));
    }
    return TT_OK;
}

static tt_status list_slots(const replica_run *run, const tt_named_tensors *parameters, tt_tensor *const *in,
                            tt__replica_slots *l) {
    for (int64_t s = 0; s < run->in_count; s++)
        TT__TRY(tt__replica_slot_add(l, in[s], true));
    for (int64_t s = 0; s < parameters->count; s++)
        TT__TRY(tt__replica_slot_add(l, parameters->tensors[s], false));
    for (int r = 0; r < run->parts; r++) {
        const replica_part *p = &run->part[r];
        if (!p->joined)
            continue;
        tt__reach reach = {0};
        tt_status status = tt__reach_from(&reach, p->joined);
        if (!status)
            status = add_shared_leaves(run, p, &reach, l);
        tt__reach_free(&reach);
        TT__TRY(status);
    }
    return TT_OK;
}

/* Record the call; the record then owns the run. */
static tt_status record_run(replica_run *run, const tt_named_tensors *parameters, tt_tensor *const *in,
                            tt_tensor *const *out) {
    tt__replica_slots l = {0};
    tt_node *node = NULL;
    tt_status status = list_slots(run, parameters, in, &l);
    if (!status) {
        run->slots = l.count;
        node = tt__node_new(&replicas_op, (int)l.count, l.tensors, (int)run->out_count, 0, &run, sizeof(replica_run *));
        status = node ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory to record the call", who);
    }
    tt__pool_free(l.tensors);
    tt__pointer_map_free(&l.at);
    TT__TRY(status);
    for (int64_t k = 0; k < run->out_count; k++)
        if (has_graph(run, k))
            tt__node_made(node, (int)k, out[k]);
    tt__node_unref(node);
    return TT_OK;
}

/* A fingerprint of the generator's state, and so of all that it will draw. */
static uint64_t generator_fingerprint(const tt_generator *g) {
    uint64_t print = TT__FNV + (uint64_t)g->next;
    for (int i = 0; i < TT__MT_WORDS; i++)
        print = tt__fnv_number(print, g->mt[i]);
    return print ^ print >> 32;
}

static tt_status replicas_run_forward(replica_run *run, const tt_named_tensors *parameters, tt_tensor **out,
                                      bool *owned) {
    tt_tensor *const *in = run->in;
    bool records = false;
    tt__replica_crew_run(run->crew, run->parts, forward_task, run);
    run->in = NULL;
    TT__TRY(first_failure(run));
    for (int64_t k = 0; k < run->out_count; k++) {
        out[k] = put_together(run, k);
        if (!out[k])
            return tt_last_status();
        records |= has_graph(run, k);
    }
    if (!records)
        return TT_OK;
    TT__TRY(record_run(run, parameters, in, out));
    *owned = true;
    return TT_OK;
}

tt_status tt__replicas_forward(tt__replica_crew *crew, int replicas, tt_module *module, const tt__module_copies *copies,
                               tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    const tt_tensor *first;
    const tt_named_tensors *parameters = tt_module_parameters(module);
    int64_t rows = 0, parts = 1;
    bool owned = false;
    if (!parameters)
        return tt_last_status();
    if (in_count + parameters->count > INT_MAX || out_count > INT_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: too many tensors", who);
    TT__TRY(check_batch(in, in_count, &first));
    if (first)
        parts = tt__chunk_count(first->shape.dim[0], replicas, &rows);
    replica_run *run = run_new(crew, (int)parts, rows, first ? first->shape.dim[0] : 0, in_count, out_count);
    if (!run)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld replicas", who, (long long)parts);
    for (int64_t i = 0; i < in_count; i++)
        run->cut[i] = is_cut(in[i]);
    run->module = module;
    run->copies = copies;
    run->own_count = parameters->count;
    run->in = in;
    run->records = tt__is_recording();
    run->begun = tt__node_last_number();
    run->autocast = tt__autocast_state();
    run->seed = parts > 1 ? generator_fingerprint(tt_default_generator()) : 0;
    tt_status status = use_copies(run);
    if (!status)
        status = replicas_run_forward(run, parameters, out, &owned);
    for (int64_t k = 0; k < out_count && status; k++)
        out[k] = tt__abandon(out[k]);
    if (!owned)
        run_free(run);
    return status;
}
