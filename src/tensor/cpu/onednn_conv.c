/* Convolutions of f32 by oneDNN. A primitive is made for each kind of call (shapes, format, direction, threads) and
 * kept by its thread, which so runs it without a lock; oneDNN itself keeps the code that the threads' primitives share.
 * Images are used as they lie. Weights, which are small, are brought to the order that oneDNN likes best and back;
 * memory for that, and for what it computes in between, comes from the pool for the length of a call. */
#include "tensor/cpu/onednn.h"

#include "base/error.h"
#include "tensor/cpu/onednn_version.h"
#include "tensor/memory_format.h"
#include "tensor/parallel.h"
#include "tensor/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What a primitive is found by: compared byte by byte, so made from zeros. */
typedef struct conv_key {
    int64_t x[4], w[4], y[4]; /* sizes: (N,C,H,W), (K,C/groups,R,S), (N,K,P,Q) */
    tt__conv conv;
    int32_t direction, bias, channels_last, threads;
} conv_key;

/* A convolution's tensors; `bias` may be NULL. The one that `direction` says is written. */
typedef struct conv_call {
    tt__conv_direction direction;
    const tt_tensor *x, *w, *bias, *y;
    const tt__conv *conv;
} conv_call;

/* Arguments, in the order of `memory`; PLAIN are weights as the caller has them, LIKED as oneDNN likes them. */
enum { IMAGE, LIKED, BIAS, OUTPUT, SCRATCH, PLAIN, MEMORIES };

typedef struct conv_primitive {
    conv_key key;
    uint64_t used;                  /* when, in calls */
    dnnl_primitive_t run, reorder;  /* reorder NULL: LIKED is PLAIN */
    dnnl_memory_t memory[MEMORIES]; /* NULL: not used */
    size_t liked_bytes, scratch_bytes;
} conv_primitive;

/* More kinds of calls than a large model has in both directions. */
enum { KEPT = 512 };

typedef struct conv_cache {
    dnnl_stream_t stream;
    int n, last; /* last: where the last one was found; a step's calls follow each other in the order they were made */
    uint64_t calls;
    conv_primitive *kept[KEPT];
} conv_cache;

/* ---- the thread's primitives */

static dnnl_engine_t conv_engine;
static dnnl_primitive_attr_t conv_attributes;
static pthread_key_t cache_key;
static pthread_once_t conv_once = PTHREAD_ONCE_INIT;
static dnnl_status_t conv_ready;

static void primitive_free(conv_primitive *p) {
    const tt__onednn *onednn = tt__onednn_get();
    for (int i = 0; i < MEMORIES; i++)
        if (p->memory[i])
            onednn->dnnl_memory_destroy(p->memory[i]);
    if (p->run)
        onednn->dnnl_primitive_destroy(p->run);
    if (p->reorder)
        onednn->dnnl_primitive_destroy(p->reorder);
    free(p);
}

static void cache_free(void *user) {
    conv_cache *cache = user;
    for (int i = 0; i < cache->n; i++)
        primitive_free(cache->kept[i]);
    if (cache->stream)
        tt__onednn_get()->dnnl_stream_destroy(cache->stream);
    free(cache);
}

static void conv_begin(void) {
    const tt__onednn *onednn = tt__onednn_get();
    conv_ready = pthread_key_create(&cache_key, cache_free) ? dnnl_out_of_memory : dnnl_success;
    if (!conv_ready)
        conv_ready = onednn->dnnl_engine_create(&conv_engine, dnnl_cpu, 0);
    if (!conv_ready)
        conv_ready = onednn->dnnl_primitive_attr_create(&conv_attributes);
    if (!conv_ready)
        conv_ready = onednn->dnnl_primitive_attr_set_scratchpad_mode(conv_attributes, dnnl_scratchpad_mode_user);
}

/* Return this thread's cache, made by its first call; NULL: no memory. */
static conv_cache *cache_of_thread(void) {
    pthread_once(&conv_once, conv_begin);
    if (conv_ready)
        return NULL;
    conv_cache *cache = pthread_getspecific(cache_key);
    if (cache)
        return cache;
    cache = calloc(1, sizeof *cache);
    if (cache && !tt__onednn_get()->dnnl_stream_create(&cache->stream, conv_engine, dnnl_stream_default_flags) &&
        !pthread_setspecific(cache_key, cache))
        return cache;
    if (cache)
        cache_free(cache);
    return NULL;
}

/* Return the place for one more primitive: a free one, or that of the one unused for longest, which goes. */
static int cache_place(conv_cache *cache) {
    if (cache->n < KEPT)
        return cache->n++;
    int oldest = 0;
    for (int i = 1; i < KEPT; i++)
        if (cache->kept[i]->used < cache->kept[oldest]->used)
            oldest = i;
    primitive_free(cache->kept[oldest]);
    return oldest;
}

static conv_primitive *cache_find(conv_cache *cache, const conv_key *key) {
    for (int i = 1; i <= cache->n; i++) {
        int at = (cache->last + i) % cache->n;
        if (!memcmp(&cache->kept[at]->key, key, sizeof *key)) {
            cache->last = at;
            cache->kept[at]->used = ++cache->calls;
            return cache->kept[at];
        }
    }
    return NULL;
}

/* ---- making a primitive */

static conv_key key_of(const conv_call *c) {
    conv_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.x, c->x->shape.dim, sizeof key.x);
    memcpy(key.w, c->w->shape.dim, sizeof key.w);
    memcpy(key.y, c->y->shape.dim, sizeof key.y);
    key.conv = *c->conv;
    key.direction = (int32_t)c->direction;
    key.bias = c->bias != NULL;
    key.channels_last = !tt__lies_as(c->x, TT_CONTIGUOUS) || !tt__lies_as(c->y, TT_CONTIGUOUS);
    key.threads = tt_get_num_threads();
    return key;
}

static dnnl_status_t describe_image(tt__onednn_memory *to, const int64_t *size, bool channels_last) {
    tt_shape shape = {.ndim = 4, .dim = {size[0], size[1], size[2], size[3]}};
    int64_t stride[4];
    tt__format_strides(&shape, channels_last ? TT_CHANNELS_LAST : TT_CONTIGUOUS, stride);
    return tt__onednn_memory_make(to, 4, size, stride);
}

/* Describe weights: (K,C,R,S), or, of several groups, (groups,K/groups,C/groups,R,S). */
static dnnl_status_t describe_weight(tt__onednn_memory *to, const conv_key *key, bool plain) {
    int64_t G = key->conv.groups, K = key->w[0] / G, C = key->w[1], R = key->w[2], S = key->w[3];
    const int64_t size[] = {G, K, C, R, S}, stride[] = {K * C * R * S, C * R * S, R * S, S, 1};
    int skip = G == 1;
    return tt__onednn_memory_make(to, 5 - skip, size + skip, plain ? stride + skip : NULL);
}

static void conv_descriptions_free(tt__onednn_conv *d, tt__onednn_memory *plain) {
    tt__onednn_memory_free(&d->x);
    tt__onednn_memory_free(&d->w);
    tt__onednn_memory_free(&d->b);
    tt__onednn_memory_free(&d->y);
    tt__onednn_memory_free(plain);
}

static dnnl_status_t describe_all(tt__onednn_conv *d, tt__onednn_memory *plain, const conv_key *key) {
    d->direction = (tt__conv_direction)key->direction;
    d->bias = key->bias;
    for (int i = 0; i < 2; i++) {
        d->stride[i] = key->conv.window.stride[i];
        d->padding[i] = key->conv.window.padding[i];
        d->dilation[i] = key->conv.window.dilation[i] - 1;
    }
    dnnl_status_t status = describe_image(&d->x, key->x, key->channels_last);
    if (!status)
        status = describe_image(&d->y, key->y, key->channels_last);
    if (!status)
        status = describe_weight(&d->w, key, false);
    if (!status)
        status = describe_weight(plain, key, true);
    if (!status)
        status = tt__onednn_memory_make(&d->b, 1, key->w, (const int64_t[]){1});
    return status;
}

static dnnl_status_t memory_make(conv_primitive *p, int which, tt__onednn_memory_ref description) {
    return tt__onednn_get()->dnnl_memory_create(&p->memory[which], description, conv_engine, NULL);
}

/* Make the reorder between the caller's weights and oneDNN's. */
static dnnl_status_t reorder_make(conv_primitive *p, tt__onednn_memory_ref plain, tt__onednn_memory_ref liked) {
    const tt__onednn *onednn = tt__onednn_get();
    bool back = p->key.direction == TT__CONV_WEIGHT;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = onednn->dnnl_reorder_primitive_desc_create(
        &pd, back ? liked : plain, conv_engine, back ? plain : liked, conv_engine, conv_attributes);
    if (!status)
        status = onednn->dnnl_primitive_create(&p->reorder, pd);
    if (pd)
        onednn->dnnl_primitive_desc_destroy(pd);
    p->liked_bytes = onednn->dnnl_memory_desc_get_size(liked);
    return status ? status : memory_make(p, PLAIN, plain);
}

static dnnl_status_t primitive_make(conv_primitive *p, const tt__onednn_conv *d, tt__onednn_memory_ref plain) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = tt__onednn_conv_describe(&pd, d, conv_engine, conv_attributes);
    if (status)
        return status;
    dnnl_query_t weights = d->direction == TT__CONV_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    tt__onednn_memory_ref liked = onednn->dnnl_primitive_desc_query_md(pd, weights, 0);
    tt__onednn_memory_ref scratch = onednn->dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = onednn->dnnl_memory_desc_get_size(scratch);
    status = onednn->dnnl_primitive_create(&p->run, pd);
    if (!status)
        status = memory_make(p, IMAGE, TT__ONEDNN_REF(d->x));
    if (!status)
        status = memory_make(p, OUTPUT, TT__ONEDNN_REF(d->y));
    if (!status)
        status = memory_make(p, LIKED, liked);
    if (!status && d->bias)
        status = memory_make(p, BIAS, TT__ONEDNN_REF(d->b));
    if (!status && p->scratch_bytes)
        status = memory_make(p, SCRATCH, scratch);
    if (!status && !onednn->dnnl_memory_desc_equal(liked, plain))
        status = reorder_make(p, plain, liked);
    onednn->dnnl_primitive_desc_destroy(pd);
    return status;
}

static dnnl_status_t cache_add(conv_cache *cache, const conv_key *key, conv_primitive **made) {
    conv_primitive *p = calloc(1, sizeof *p);
    if (!p)
        return dnnl_out_of_memory;
    p->key = *key;
    tt__onednn_conv d;
    tt__onednn_memory plain;
    memset(&d, 0, sizeof d);
    memset(&plain, 0, sizeof plain);
    dnnl_status_t status = describe_all(&d, &plain, key);
    if (!status)
        status = primitive_make(p, &d, TT__ONEDNN_REF(plain));
    conv_descriptions_free(&d, &plain);
    if (status) {
        primitive_free(p);
        return status;
    }
    p->used = ++cache->calls;
    cache->last = cache_place(cache);
    *made = cache->kept[cache->last] = p;
    return dnnl_success;
}

/* ---- running it */

static dnnl_status_t run_reorder(const conv_cache *cache, const conv_primitive *p, bool back) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->memory[back ? LIKED : PLAIN]},
                                    {DNNL_ARG_TO, p->memory[back ? PLAIN : LIKED]}};
    return p->reorder ? tt__onednn_get()->dnnl_primitive_execute(p->reorder, cache->stream, 2, args) : dnnl_success;
}

static dnnl_status_t run_conv(const conv_cache *cache, const conv_primitive *p) {
    static const int argument[3][SCRATCH + 1] = {
        [TT__CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        [TT__CONV_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD},
        [TT__CONV_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST,
                             DNNL_ARG_SCRATCHPAD}};
    dnnl_exec_arg_t args[SCRATCH + 1];
    int n = 0;
    for (int i = 0; i <= SCRATCH; i++)
        if (p->memory[i])
            args[n++] = (dnnl_exec_arg_t){argument[p->key.direction][i], p->memory[i]};
    return tt__onednn_get()->dnnl_primitive_execute(p->run, cache->stream, n, args);
}

static dnnl_status_t run_with(const conv_cache *cache, const conv_primitive *p, const conv_call *c, void *liked,
                              void *scratch) {
    const tt__onednn *onednn = tt__onednn_get();
    bool back = c->direction == TT__CONV_WEIGHT;
    void *const at[] = {[IMAGE] = c->x->data,  [LIKED] = liked ? liked : c->w->data,
                        [OUTPUT] = c->y->data, [BIAS] = c->bias ? c->bias->data : NULL,
                        [SCRATCH] = scratch,   [PLAIN] = c->w->data};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < MEMORIES && !status; i++)
        if (p->memory[i])
            status = onednn->dnnl_memory_set_data_handle(p->memory[i], at[i]);
    if (!status && !back)
        status = run_reorder(cache, p, false);
    if (!status)
        status = run_conv(cache, p);
    if (!status && back)
        status = run_reorder(cache, p, true);
    return status ? status : onednn->dnnl_stream_wait(cache->stream);
}

static dnnl_status_t run_cached(conv_cache *cache, const conv_call *c) {
    conv_key key = key_of(c);
    conv_primitive *p = cache_find(cache, &key);
    dnnl_status_t status = p ? dnnl_success : cache_add(cache, &key, &p);
    if (status)
        return status;
    void *liked = p->reorder ? tt__pool_alloc(p->liked_bytes) : NULL;
    void *scratch = p->scratch_bytes ? tt__pool_alloc(p->scratch_bytes) : NULL;
    bool room = (liked || !p->reorder) && (scratch || !p->scratch_bytes);
    status = room ? run_with(cache, p, c, liked, scratch) : dnnl_out_of_memory;
    tt__pool_free(scratch);
    tt__pool_free(liked);
    return status;
}

static tt_status conv_run(const conv_call *c) {
    if (!tt__onednn_get())
        return TT_ERR_UNSUPPORTED;
    tt__parallel_prepare();
    conv_cache *cache = cache_of_thread();
    dnnl_status_t status = cache ? run_cached(cache, c) : conv_ready ? conv_ready : dnnl_out_of_memory;
    if (!status)
        return TT_OK;
    return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                    "oneDNN could not convolve x %s with weight %s: status %d", TT__SHAPE_TEXT(&c->x->shape),
                    TT__SHAPE_TEXT(&c->w->shape), (int)status);
}

tt_status tt__onednn_conv2d_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                                const tt__conv *conv) {
    return conv_run(&(conv_call){TT__CONV_FORWARD, x, w, bias, y, conv});
}

tt_status tt__onednn_conv2d_backward_data_f32(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                              const tt__conv *conv) {
    return conv_run(&(conv_call){TT__CONV_DATA, dx, w, NULL, g, conv});
}

tt_status tt__onednn_conv2d_backward_weight_f32(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                                const tt__conv *conv) {
    return conv_run(&(conv_call){TT__CONV_WEIGHT, x, dw, db, g, conv});
}
