/* Low-rank gradients: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
 * Optimization" (2019), algorithm 1 with the warm start and the error feedback of algorithm 2.
 *
 * M (rows,columns) is a gradient plus the error of the step before; P (rows,r) and Q (columns,r) are stored
 * transposed, so that all products are of contiguous matrices:
 *   stage 0  Q orthogonal; P' (r,rows) = Q' M'; sum P' over the ranks, with all gradients that are not compressed
 *   stage 1  P orthogonal; Q' (r,columns) = P' M; sum Q' over the ranks
 *   end      Q / N; the error is M - P Q', the gradient P Q'
 * All-reduces of r (rows + columns) numbers instead of rows * columns. All ranks compute in the same order after an
 * all-reduce, so they have the same bits, even on different machines. */
#include "base/args.h"
#include "base/error.h"
#include "base/text/format.h"
#include "parallel/hooks/comm_hook.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"
#include "tensor/random/generator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A matrix's Q of the last step, transposed. */
typedef struct power_matrix {
    int64_t rows, columns, rank; /* rank 0: it is not compressed */
    float *q;                    /* (rank,columns) */
    bool warm;                   /* `q` is of an earlier step */
} power_matrix;

typedef struct power_hook {
    tt__comm_hook base;
    int rank;
    int64_t start;
    double min_compression_rate, epsilon;
    bool feedback, warm_start;
    uint32_t seed;
    int64_t step;
    tt_generator seeds;     /* numpy's RandomState(seed) */
    int64_t matrix_count;   /* parameters */
    power_matrix *matrices; /* by the parameter's number */
    int64_t *order;         /* room for the numbers of one bucket's compressed gradients */
} power_hook;

enum { PS, QS };

/* ---- which gradients are compressed ---- */

static int64_t useful_rank(const power_hook *h, int64_t rows, int64_t columns) {
    int64_t rank = h->rank;
    rank = rows < rank ? rows : rank;
    rank = columns < rank ? columns : rank;
    bool pays = (double)(rows + columns) * (double)rank * h->min_compression_rate < (double)rows * (double)columns;
    return pays ? rank : 0;
}

static int64_t param_rank(const power_hook *h, int64_t param) {
    const tt__hook_param *p = &h->base.params[param];
    return p->rows > 0 && p->count > 0 ? useful_rank(h, p->rows, p->count / p->rows) : 0;
}

static const power_matrix *matrix_of(const power_hook *h, const tt_bucket_gradient *at) {
    return &h->matrices[at->param];
}

static bool is_like(const power_matrix *a, const power_matrix *b) {
    return a->rows == b->rows && a->columns == b->columns;
}

/* The compressed gradients of a bucket, as indices into its list, in the order in which their Qs are drawn. As in
 * PyTorch, those of one shape follow the first of them. Returns how many. */
static int64_t list_compressed(const power_hook *h, const tt_bucket *b) {
    int64_t n = 0;
    for (int64_t first = 0; first < b->gradient_count; first++) {
        const power_matrix *m = matrix_of(h, &b->gradients[first]);
        bool listed = false;
        for (int64_t k = 0; k < n && !listed; k++)
            listed = h->order[k] == first;
        for (int64_t g = first; g < b->gradient_count && m->rank && !listed; g++)
            if (is_like(m, matrix_of(h, &b->gradients[g])))
                h->order[n++] = g;
    }
    return n;
}

/* ---- drawing ---- */

/* Draw Q (columns,rank) of normal numbers, transposed. `room` has space for as many. */
static void draw_q(tt_generator *g, const power_matrix *m, float *room) {
    tt__generator_normal_f32(g, room, m->columns * m->rank, 0, 1);
    for (int64_t c = 0; c < m->columns; c++)
        for (int64_t k = 0; k < m->rank; k++)
            m->q[k * m->columns + c] = room[c * m->rank + k];
}

/* Draw all Qs of the bucket anew. The draws are alike on all ranks. room: of the bucket's Qs. */
static void draw_qs(power_hook *h, const tt_bucket *b, int64_t count, float *room) {
    tt_generator g;
    tt__generator_init(&g, tt__numpy_randint_billion(&h->seeds));
    for (int64_t k = 0; k < count; k++)
        draw_q(&g, matrix_of(h, &b->gradients[h->order[k]]), room);
}

static bool all_are_warm(const power_hook *h, const tt_bucket *b, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (!matrix_of(h, &b->gradients[h->order[k]])->warm)
            return false;
    return true;
}

/* ---- products ---- */

/* M (n,m): out (r,n) := q (r,m) M'; with `by_rows` out (r,m) := q (r,n) M. */
static tt_status multiply(float *out, const float *q, const float *at, const power_matrix *m, bool by_rows) {
    TT_AUTO_SCOPE;
    int64_t in_size = by_rows ? m->rows : m->columns, out_size = by_rows ? m->columns : m->rows;
    tt_tensor *y = tt_from_blob(out, TT_SHAPE(m->rank, out_size), TT_F32);
    tt_tensor *x = tt_from_blob((void *)q, TT_SHAPE(m->rank, in_size), TT_F32);
    tt_tensor *matrix = tt_from_blob((void *)at, TT_SHAPE(m->rows, m->columns), TT_F32);
    if (!y || !x || !matrix)
        return tt_last_status();
    tt_tensor turned = tt__transposed(matrix);
    return tt__matmul_out(tt__hook_site, y, x, by_rows ? matrix : &turned, 0);
}

static double epsilon_of(const power_hook *h, const power_matrix *m) { return m->rank <= 2 ? h->epsilon : 0; }

/* ---- stages ---- */

/* Walk over a bucket: the compressed gradients in the order of the list, and where their P and Q lie. */
typedef struct power_walk {
    const power_matrix *m;
    float *data, *error, *p, *q;
} power_walk;

static int64_t start_walk(const power_hook *h, const tt_bucket *b, power_walk *w) {
    tt__hook_bucket *own = tt__hook_bucket_of(&h->base, b);
    *w = (power_walk){.p = own->buffers[PS], .q = own->buffers[QS]};
    return list_compressed(h, b);
}

static void walk_to(const power_hook *h, const tt_bucket *b, int64_t k, power_walk *w) {
    const tt__hook_bucket *own = tt__hook_bucket_of(&h->base, b);
    if (k) {
        w->p += w->m->rows * w->m->rank;
        w->q += w->m->columns * w->m->rank;
    }
    const tt_bucket_gradient *at = &b->gradients[h->order[k]];
    w->m = matrix_of(h, at);
    w->data = (float *)b->data + at->offset;
    w->error = own->error ? own->error + at->offset : NULL;
}

/* Copy the gradients that aren't compressed to `flat`, or back, divided by the number of ranks. Returns their number of
 * elements. */
static int64_t move_others(const power_hook *h, const tt_bucket *b, float *flat, bool back) {
    int64_t n = 0;
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt_bucket_gradient *at = &b->gradients[g];
        float *x = (float *)b->data + at->offset;
        if (matrix_of(h, at)->rank)
            continue;
        memcpy(back ? x : flat + n, back ? flat + n : x, (size_t)at->count * sizeof *x);
        if (back)
            TT__LEVEL_CHOOSE(tt__hook_kernels)->divide(x, (size_t)at->count, (float)tt_get_world_size(b->group));
        n += at->count;
    }
    return n;
}

static tt_status sum_floats(const tt_bucket *b, float *x, int64_t count, tt_work **work) {
    return count ? tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, b->group, x, count, TT_F32, TT_SUM, .work = work,
                                              .file = tt__hook_site))
                 : TT_OK;
}

static tt_status send_ps(power_hook *h, const tt_bucket *b, tt_work **work) {
    power_walk w;
    int64_t count = start_walk(h, b, &w);
    float *first = w.p;
    if (count && (!h->warm_start || !all_are_warm(h, b, count)))
        draw_qs(h, b, count, w.q);
    TT__TRY(tt__hook_keep_error(&h->base, b));
    for (int64_t k = 0; k < count; k++) {
        walk_to(h, b, k, &w);
        if (w.error)
            TT__LEVEL_CHOOSE(tt__hook_kernels)->add(w.data, w.error, (size_t)(w.m->rows * w.m->columns));
        tt__orthonormal_rows(w.m->q, w.m->rank, w.m->columns, epsilon_of(h, w.m));
        TT__TRY(multiply(w.p, w.m->q, w.data, w.m, false));
    }
    float *end = count ? w.p + w.m->rows * w.m->rank : w.p;
    int64_t others = move_others(h, b, end, false);
    return sum_floats(b, first, end - first + others, work);
}

static tt_status send_qs(power_hook *h, const tt_bucket *b, tt_work **work) {
    power_walk w;
    int64_t count = start_walk(h, b, &w);
    float *first = w.q;
    for (int64_t k = 0; k < count; k++) {
        walk_to(h, b, k, &w);
        tt__orthonormal_rows(w.p, w.m->rank, w.m->rows, epsilon_of(h, w.m));
        TT__TRY(multiply(w.q, w.p, w.data, w.m, true));
    }
    move_others(h, b, count ? w.p + w.m->rows * w.m->rank : w.p, true);
    return sum_floats(b, first, count ? w.q + w.m->columns * w.m->rank - first : 0, work);
}

/* Keep Q. If a gradient was not finite, Q and the error begin anew, on all ranks, as all have the same Q. */
static void keep_q(const power_hook *h, power_matrix *m, const power_walk *w) {
    size_t numbers = (size_t)(m->rank * m->columns);
    m->warm = TT__LEVEL_CHOOSE(tt__hook_kernels)->largest(w->q, numbers) < 0x7f800000;
    if (m->warm)
        memcpy(m->q, w->q, numbers * sizeof(float));
    else if (h->feedback)
        memset(w->error, 0, (size_t)(m->rows * m->columns) * sizeof(float));
}

static void decompress(power_hook *h, const tt_bucket *b) {
    const tt__hook_kernels *kernels = TT__LEVEL_CHOOSE(tt__hook_kernels);
    power_walk w;
    int64_t count = start_walk(h, b, &w);
    for (int64_t k = 0; k < count; k++) {
        walk_to(h, b, k, &w);
        const power_matrix *m = w.m;
        kernels->divide(w.q, (size_t)(m->rank * m->columns), (float)tt_get_world_size(b->group));
        kernels->low_rank(w.data, w.error, w.p, w.q, (size_t)m->rows, (size_t)m->columns, (size_t)m->rank);
        keep_q(h, &h->matrices[b->gradients[h->order[k]].param], &w);
    }
}

static tt_status power_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    power_hook *h = state;
    if (stage == h->base.cls->hook.stages) {
        if (h->step >= h->start) {
            decompress(h, b);
            tt__hook_put_error_back(&h->base, b);
        }
        h->step += b->index + 1 == b->buckets;
        return TT_OK;
    }
    if (h->step >= h->start)
        return stage == 0 ? send_ps(h, b, work) : send_qs(h, b, work);
    return stage ? TT_OK
                 : tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, b->group, b->data, b->count, b->dtype, TT_AVG,
                                              .work = work, .file = tt__hook_site));
}

/* ---- life ---- */

static void power_needs(const tt__comm_hook *hook, const tt_bucket *b, tt__hook_needs *needs) {
    const power_hook *h = (const power_hook *)hook;
    size_t ps = 0, qs = 0;
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt__hook_param *p = &hook->params[b->gradients[g].param];
        int64_t rank = param_rank(h, b->gradients[g].param);
        ps += (size_t)(rank ? rank * p->rows : b->gradients[g].count);
        qs += (size_t)(rank ? rank * (p->count / p->rows) : 0);
        needs->error |= rank && h->feedback;
    }
    needs->bytes[PS] = ps * sizeof(float);
    needs->bytes[QS] = qs * sizeof(float);
}

static void free_matrices(power_hook *h) {
    for (int64_t i = 0; i < h->matrix_count; i++)
        free(h->matrices[i].q);
    free(h->matrices);
    free(h->order);
    h->matrices = NULL;
    h->order = NULL;
    h->matrix_count = 0;
}

static bool matrices_fit(const power_hook *h) {
    bool fit = h->matrix_count == h->base.param_count;
    for (int64_t i = 0; i < h->matrix_count && fit; i++) {
        const tt__hook_param *p = &h->base.params[i];
        const power_matrix *m = &h->matrices[i];
        fit = m->rank == param_rank(h, i) && (!m->rank || (m->rows == p->rows && m->rows * m->columns == p->count));
    }
    return fit;
}

static tt_status power_attached(tt__comm_hook *hook) {
    power_hook *h = (power_hook *)hook;
    if (h->matrices && matrices_fit(h))
        return TT_OK;
    free_matrices(h);
    h->matrices = calloc((size_t)hook->param_count + 1, sizeof *h->matrices);
    h->order = calloc((size_t)hook->param_count + 1, sizeof *h->order);
    bool there = h->matrices && h->order;
    for (; h->matrix_count < hook->param_count && there; h->matrix_count++) {
        power_matrix *m = &h->matrices[h->matrix_count];
        const tt__hook_param *p = &hook->params[h->matrix_count];
        int64_t rank = param_rank(h, h->matrix_count);
        if (!rank)
            continue;
        *m = (power_matrix){.rows = p->rows, .columns = p->count / p->rows, .rank = rank};
        there = (m->q = calloc((size_t)(m->columns * rank), sizeof *m->q)) != NULL;
    }
    if (there)
        return TT_OK;
    free_matrices(h);
    return tt__fail(TT_ERR_MEMORY, "no memory for the matrices of %lld parameters", (long long)hook->param_count);
}

static void power_forget(tt__comm_hook *hook) {
    power_hook *h = (power_hook *)hook;
    h->step = 0;
    tt__generator_init(&h->seeds, h->seed);
    for (int64_t i = 0; i < h->matrix_count; i++)
        h->matrices[i].warm = false;
}

static void power_free(tt__comm_hook *hook) {
    free_matrices((power_hook *)hook);
    free(hook);
}

/* ---- the state that is alike on all ranks ---- */

static size_t q_bytes(const power_matrix *m) { return (size_t)(m->rank * m->columns) * sizeof(float); }

static size_t power_shared_size(const tt__comm_hook *hook) {
    const power_hook *h = (const power_hook *)hook;
    size_t size = sizeof h->step + sizeof h->seeds;
    for (int64_t i = 0; i < h->matrix_count; i++)
        size += h->matrices[i].rank ? 1 + q_bytes(&h->matrices[i]) : 0;
    return size;
}

static int64_t power_progress(const tt__comm_hook *hook) { return ((const power_hook *)hook)->step; }

static void power_write_shared(const tt__comm_hook *hook, void *to) {
    const power_hook *h = (const power_hook *)hook;
    char *at = to;
    memcpy(at, &h->step, sizeof h->step);
    memcpy(at += sizeof h->step, &h->seeds, sizeof h->seeds);
    at += sizeof h->seeds;
    for (int64_t i = 0; i < h->matrix_count; i++) {
        const power_matrix *m = &h->matrices[i];
        if (!m->rank)
            continue;
        *at++ = (char)m->warm;
        memcpy(at, m->q, q_bytes(m));
        at += q_bytes(m);
    }
}

static void power_read_shared(tt__comm_hook *hook, const void *from) {
    power_hook *h = (power_hook *)hook;
    const char *at = from;
    memcpy(&h->step, at, sizeof h->step);
    memcpy(&h->seeds, at += sizeof h->step, sizeof h->seeds);
    at += sizeof h->seeds;
    for (int64_t i = 0; i < h->matrix_count; i++) {
        power_matrix *m = &h->matrices[i];
        if (!m->rank)
            continue;
        m->warm = *at++ != 0;
        memcpy(m->q, at, q_bytes(m));
        at += q_bytes(m);
    }
}

/* ---- state dict ---- */

static int64_t power_save_room(const tt__comm_hook *hook) { return hook->param_count + 2; }

static tt_status power_save(tt__comm_hook *hook, tt__dict *dict) {
    power_hook *h = (power_hook *)hook;
    TT__TRY(tt__dict_add_own(dict, tt_from_data(&h->step, TT_SCALAR, TT_I64), "powersgd.step"));
    TT__TRY(tt__dict_add_own(dict, tt_generator_get_state(&h->seeds), "powersgd.seeds"));
    for (int64_t i = 0; i < h->matrix_count; i++) {
        const power_matrix *m = &h->matrices[i];
        if (m->rank && m->warm)
            TT__TRY(tt__dict_add_own(dict, tt_from_data(m->q, TT_SHAPE(m->rank, m->columns), TT_F32), "powersgd.q.%s",
                                     hook->params[i].name));
    }
    return TT_OK;
}

static tt_status power_load(tt__comm_hook *hook, const tt_named_tensors *state) {
    power_hook *h = (power_hook *)hook;
    const tt_tensor *x;
    TT__TRY(tt__hook_find(hook, state, "step", "", TT_I64, 1, &x));
    int64_t step = *(const int64_t *)tt_tensor_data((tt_tensor *)x);
    if (step < 0)
        return tt__fail(TT_ERR_INVALID, "\"powersgd.step\": expected a number of steps, got %lld", (long long)step);
    const tt_tensor *seeds = tt_named_tensors_find(state, "powersgd.seeds");
    if (!seeds)
        return tt__fail(TT_ERR_NOT_FOUND, "entry \"powersgd.seeds\" is missing");
    TT__TRY(tt_generator_set_state(&h->seeds, seeds));
    h->step = step;
    for (int64_t i = 0; i < h->matrix_count; i++) {
        power_matrix *m = &h->matrices[i];
        if (!m->rank || h->step <= h->start || !h->warm_start)
            continue;
        tt_status status = tt__hook_find(hook, state, "q.", hook->params[i].name, TT_F32, m->rank * m->columns, &x);
        if (status == TT_ERR_NOT_FOUND) /* of a step that was not finite */
            continue;
        TT__TRY(status);
        memcpy(m->q, tt_tensor_data((tt_tensor *)x), q_bytes(m));
        m->warm = true;
    }
    return TT_OK;
}

/* ---- making ---- */

static tt_status check_powersgd(const tt_powersgd_hook_args *a) {
    static const char who[] = "tt_powersgd_hook";
    if (a->rank < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a rank of at least 1 (0: 1), got %d", who, a->rank);
    if (!(a->min_compression_rate >= 0) || isinf(a->min_compression_rate))
        return tt__fail(TT_ERR_INVALID, "%s: expected a min_compression_rate above 0 (0: 2), got %g", who,
                        a->min_compression_rate);
    if (!(a->orthogonalization_epsilon >= 0) || isinf(a->orthogonalization_epsilon))
        return tt__fail(TT_ERR_INVALID, "%s: expected an orthogonalization_epsilon of at least 0, got %g", who,
                        a->orthogonalization_epsilon);
    return TT_OK;
}

static const tt__hook_class powersgd_class = {.hook = {.size = sizeof(tt_comm_hook),
                                                       .name = "powersgd",
                                                       .stages = 2,
                                                       .next = power_next,
                                                       .attach = tt__hook_attach,
                                                       .detach = tt__hook_detach},
                                              .takes = tt__hook_takes_f32,
                                              .types = "f32",
                                              .needs = power_needs,
                                              .attached = power_attached,
                                              .shared_size = power_shared_size,
                                              .progress = power_progress,
                                              .write_shared = power_write_shared,
                                              .read_shared = power_read_shared,
                                              .save_room = power_save_room,
                                              .save = power_save,
                                              .load = power_load,
                                              .forget = power_forget,
                                              .free = power_free};

tt_status tt_powersgd_hook_with(const tt_powersgd_hook_args *given, size_t size) {
    tt_powersgd_hook_args a;
    char settings[256];
    TT__ARGS_COPY(a, given, size);
    TT__TRY(tt__hook_check("tt_powersgd_hook", a.ddp));
    tt_status status = check_powersgd(&a);
    if (status)
        return tt__hook_refused(a.ddp, status);
    power_hook *h = calloc(1, sizeof *h);
    if (h) {
        h->rank = a.rank ? a.rank : 1;
        h->start = a.start < 0 ? 0 : a.start ? a.start : 1000;
        h->min_compression_rate = a.min_compression_rate == 0 ? 2 : a.min_compression_rate;
        h->epsilon = a.orthogonalization_epsilon;
        h->feedback = !a.no_error_feedback;
        h->warm_start = !a.no_warm_start;
        h->seed = a.seed;
        power_forget(&h->base);
        tt__format(settings, sizeof settings,
                   "rank %d, start %lld, min_compression_rate %.17g, epsilon %.17g, seed %u%s%s", h->rank,
                   (long long)h->start, h->min_compression_rate, h->epsilon, h->seed,
                   a.no_error_feedback ? ", no error feedback" : "", a.no_warm_start ? ", no warm start" : "");
    }
    return tt__hook_register(a.ddp, (tt__comm_hook *)h, &powersgd_class, h ? settings : NULL);
}
