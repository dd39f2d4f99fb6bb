/* Convolutions of f32 and bf16 by oneDNN. A primitive is made for each kind of call (shapes, format, direction,
 * threads) and kept by its thread, so it runs without a lock; oneDNN itself keeps the code that the threads' primitives
 * share. Channels-last images are used in place. Contiguous images and weights are packed in the order that oneDNN
 * chooses, and results unpacked, which saves more time than it takes. Memory for that, and oneDNN's scratchpads, come
 * from the pool for the length of a call. */
#include "tensor/cpu/onednn/onednn_conv.h"

#include "base/error.h"
#include "base/process/threads.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/onednn/onednn_library.h"
#include "tensor/device/parallel.h"
#include "tensor/shape/memory_format.h"

#include <stdlib.h>
#include <string.h>

/* What a primitive is found by. */
typedef struct conv_key {
    int64_t x[4], w[4], y[4]; /* sizes: (N,C,H,W), (K,C/groups,R,S), (N,K,P,Q) */
    tt__conv conv;
    int32_t direction, bias, channels_last, threads, dtype, unused;
} conv_key;

/* A tensor of the call: `packed`, in the order that the primitive takes, and `user`, in the caller's. */
typedef struct conv_operand {
    dnnl_memory_t packed, user; /* user NULL: `packed` has the caller's order */
    dnnl_primitive_t reorder;   /* from one to the other; NULL: none needed */
    size_t bytes;               /* of `packed` */
} conv_operand;

enum { IMAGE, WEIGHT, OUTPUT, OPERANDS };

typedef struct conv_primitive {
    conv_key key;
    dnnl_primitive_t run;
    conv_operand operand[OPERANDS];
    dnnl_memory_t bias, scratch; /* NULL: not used */
    size_t scratch_bytes;
} conv_primitive;

static void conv_memory_free(dnnl_memory_t memory) {
    if (memory)
        tt__onednn_get()->dnnl_memory_destroy(memory);
}

static void conv_code_free(dnnl_primitive_t code) {
    if (code)
        tt__onednn_get()->dnnl_primitive_destroy(code);
}

static void conv_free(void *primitive) {
    conv_primitive *p = primitive;
    for (int i = 0; i < OPERANDS; i++) {
        conv_memory_free(p->operand[i].packed);
        conv_memory_free(p->operand[i].user);
        conv_code_free(p->operand[i].reorder);
    }
    conv_memory_free(p->bias);
    conv_memory_free(p->scratch);
    conv_code_free(p->run);
    free(p);
}

static const tt__onednn_kind conv_kind = {sizeof(conv_key), conv_free};

/* ---- making a primitive */

static conv_key conv_key_of(const tt__conv_call *c) {
    conv_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.x, c->x->shape.dim, sizeof key.x);
    memcpy(key.w, c->w->shape.dim, sizeof key.w);
    memcpy(key.y, c->y->shape.dim, sizeof key.y);
    key.x[0] = key.y[0] = c->count;
    key.conv = *c->conv;
    key.direction = (int32_t)c->direction;
    key.bias = c->bias != NULL;
    key.channels_last = !tt__lies_as(c->x, TT_CONTIGUOUS) || !tt__lies_as(c->y, TT_CONTIGUOUS);
    key.threads = tt_get_num_threads();
    key.dtype = (int32_t)c->x->dtype;
    return key;
}

/* Which operand a call in this direction writes. */
static int conv_result_of(int32_t direction) {
    return direction == TT__CONV_FORWARD ? OUTPUT : direction == TT__CONV_DATA ? IMAGE : WEIGHT;
}

/* For weights of images with one or two channels, the order that oneDNN chooses is slower than channels last. */
static bool conv_wants_channels_last(const conv_key *key) {
    return key->channels_last || (key->direction == TT__CONV_WEIGHT && key->x[1] < 3);
}

/* Winograd's F(4 x 4, 3 x 3) takes a quarter of the products (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 * Networks", 2016). With few channels its transforms cost more than that saves. */
static bool conv_wants_winograd(const conv_key *key) {
    const tt__window *window = &key->conv.window;
    for (int i = 0; i < 2; i++)
        if (key->w[2 + i] != 3 || window->stride[i] != 1 || window->dilation[i] != 1)
            return false;
    return key->dtype == TT_F32 && key->conv.groups == 1 && key->w[0] >= 16 && key->w[1] >= 16;
}

static dnnl_data_type_t conv_type(const conv_key *key) { return key->dtype == TT_BF16 ? dnnl_bf16 : dnnl_f32; }

static dnnl_status_t conv_describe_image(tt__onednn_memory *to, const conv_key *key, const int64_t *size,
                                         bool channels_last) {
    tt_shape shape = {.ndim = 4, .dim = {size[0], size[1], size[2], size[3]}};
    int64_t stride[4];
    tt__format_strides(&shape, channels_last ? TT_CHANNELS_LAST : TT_CONTIGUOUS, stride);
    return tt__onednn_memory_make(to, conv_type(key), 4, size, stride);
}

/* Describe weights: (K,C,R,S), or, of several groups, (groups,K/groups,C/groups,R,S). */
static dnnl_status_t conv_describe_weight(tt__onednn_memory *to, const conv_key *key, bool as_user) {
    int64_t G = key->conv.groups, K = key->w[0] / G, C = key->w[1], R = key->w[2], S = key->w[3];
    const int64_t size[] = {G, K, C, R, S}, stride[] = {K * C * R * S, C * R * S, R * S, S, 1};
    int skip = G == 1;
    return tt__onednn_memory_make(to, conv_type(key), 5 - skip, size + skip, as_user ? stride + skip : NULL);
}

static void conv_descriptions_free(tt__onednn_conv *d, tt__onednn_memory user[OPERANDS]) {
    tt__onednn_memory_free(&d->x);
    tt__onednn_memory_free(&d->w);
    tt__onednn_memory_free(&d->b);
    tt__onednn_memory_free(&d->y);
    for (int i = 0; i < OPERANDS; i++)
        tt__onednn_memory_free(&user[i]);
}

/* Describe the tensors as the caller has them. */
static dnnl_status_t conv_describe_user(tt__onednn_memory user[OPERANDS], const conv_key *key) {
    dnnl_status_t status = conv_describe_image(&user[IMAGE], key, key->x, key->channels_last);
    if (!status)
        status = conv_describe_image(&user[OUTPUT], key, key->y, key->channels_last);
    return status ? status : conv_describe_weight(&user[WEIGHT], key, true);
}

/* Describe the convolution, with the layouts that oneDNN may choose left open. */
static dnnl_status_t conv_describe(tt__onednn_conv *d, const conv_key *key) {
    d->direction = (tt__conv_direction)key->direction;
    d->bias = key->bias;
    d->winograd = conv_wants_winograd(key);
    for (int i = 0; i < 2; i++) {
        d->stride[i] = key->conv.window.stride[i];
        d->padding[i] = key->conv.window.padding[i];
        d->dilation[i] = key->conv.window.dilation[i] - 1;
    }
    bool fixed = conv_wants_channels_last(key);
    dnnl_status_t status = fixed ? conv_describe_image(&d->x, key, key->x, true)
                                 : tt__onednn_memory_make(&d->x, conv_type(key), 4, key->x, NULL);
    if (!status)
        status = fixed ? conv_describe_image(&d->y, key, key->y, true)
                       : tt__onednn_memory_make(&d->y, conv_type(key), 4, key->y, NULL);
    if (!status)
        status = conv_describe_weight(&d->w, key, false);
    if (!status)
        status = tt__onednn_memory_make(&d->b, conv_type(key), 1, key->w, (const int64_t[]){1});
    return status;
}

static dnnl_status_t conv_memory_make(dnnl_memory_t *memory, tt__onednn_memory_ref description) {
    return tt__onednn_get()->dnnl_memory_create(memory, description, tt__onednn_engine(), NULL);
}

static dnnl_status_t conv_operand_make(conv_operand *o, tt__onednn_memory_ref packed, tt__onednn_memory_ref user,
                                       bool is_result, const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_status_t status = conv_memory_make(&o->packed, packed);
    if (status || onednn->dnnl_memory_desc_equal(packed, user))
        return status;
    dnnl_primitive_desc_t pd = NULL;
    o->bytes = onednn->dnnl_memory_desc_get_size(packed);
    status = onednn->dnnl_reorder_primitive_desc_create(&pd, is_result ? packed : user, tt__onednn_engine(),
                                                        is_result ? user : packed, tt__onednn_engine(), attr);
    if (!status)
        status = onednn->dnnl_primitive_create(&o->reorder, pd);
    if (pd)
        onednn->dnnl_primitive_desc_destroy(pd);
    return status ? status : conv_memory_make(&o->user, user);
}

static dnnl_status_t conv_operands_make(conv_primitive *p, const_dnnl_primitive_desc_t pd,
                                        const tt__onednn_memory user[OPERANDS], const_dnnl_primitive_attr_t attr) {
    static const dnnl_query_t queries[3][OPERANDS] = {
        [TT__CONV_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [TT__CONV_DATA] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        [TT__CONV_WEIGHT] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && !status; i++) {
        tt__onednn_memory_ref packed =
            tt__onednn_get()->dnnl_primitive_desc_query_md(pd, queries[p->key.direction][i], 0);
        bool is_result = i == conv_result_of(p->key.direction);
        status = conv_operand_make(&p->operand[i], packed, TT__ONEDNN_REF(user[i]), is_result, attr);
    }
    return status;
}

static dnnl_status_t conv_primitive_make_with(conv_primitive *p, const tt__onednn_conv *d,
                                              const tt__onednn_memory user[OPERANDS],
                                              const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = tt__onednn_conv_describe(&pd, d, tt__onednn_engine(), attr);
    if (status)
        return status;
    tt__onednn_memory_ref scratch = onednn->dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = onednn->dnnl_memory_desc_get_size(scratch);
    status = onednn->dnnl_primitive_create(&p->run, pd);
    if (!status)
        status = conv_operands_make(p, pd, user, attr);
    if (!status && d->bias)
        status = conv_memory_make(&p->bias, TT__ONEDNN_REF(d->b));
    if (!status && p->scratch_bytes)
        status = conv_memory_make(&p->scratch, scratch);
    onednn->dnnl_primitive_desc_destroy(pd);
    return status;
}

static dnnl_status_t conv_primitive_make(conv_primitive *p, const tt__onednn_conv *d,
                                         const tt__onednn_memory user[OPERANDS]) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = onednn->dnnl_primitive_attr_create(&attr);
    if (!status)
        status = onednn->dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!status)
        status = conv_primitive_make_with(p, d, user, attr);
    if (attr)
        onednn->dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t conv_add(tt__onednn_cache *cache, const conv_key *key, conv_primitive **made) {
    conv_primitive *p = calloc(1, sizeof *p);
    if (!p)
        return dnnl_out_of_memory;
    p->key = *key;
    tt__onednn_conv d;
    tt__onednn_memory user[OPERANDS];
    memset(&d, 0, sizeof d);
    memset(user, 0, sizeof user);
    dnnl_status_t status = conv_describe_user(user, key);
    if (!status)
        status = conv_describe(&d, key);
    if (!status)
        status = conv_primitive_make(p, &d, user);
    conv_descriptions_free(&d, user);
    if (status) {
        conv_free(p);
        return status;
    }
    tt__onednn_cache_add(cache, &conv_kind, *made = p);
    return dnnl_success;
}

/* ---- running it */

/* Memory of a call beside its tensors; NULL: not needed. */
typedef struct conv_workspace {
    void *packed[OPERANDS];
    void *scratch;
} conv_workspace;

static bool conv_workspace_take(conv_workspace *workspace, const conv_primitive *p) {
    bool taken = true;
    *workspace = (conv_workspace){0};
    for (int i = 0; i < OPERANDS; i++)
        if (p->operand[i].reorder)
            taken = taken && (workspace->packed[i] = tt__pool_alloc(p->operand[i].bytes));
    if (p->scratch_bytes)
        taken = taken && (workspace->scratch = tt__pool_alloc(p->scratch_bytes));
    return taken;
}

static void conv_workspace_free(conv_workspace *workspace) {
    tt__pool_free(workspace->scratch);
    for (int i = OPERANDS; i-- > 0;)
        tt__pool_free(workspace->packed[i]);
}

static dnnl_status_t conv_run_reorder(dnnl_stream_t stream, const conv_operand *o, bool is_result) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, is_result ? o->packed : o->user},
                                    {DNNL_ARG_TO, is_result ? o->user : o->packed}};
    return o->reorder ? tt__onednn_get()->dnnl_primitive_execute(o->reorder, stream, 2, args) : dnnl_success;
}

static dnnl_status_t conv_run_primitive(dnnl_stream_t stream, const conv_primitive *p) {
    static const int argument[3][OPERANDS] = {
        [TT__CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [TT__CONV_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [TT__CONV_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    dnnl_exec_arg_t args[OPERANDS + 2];
    int n = 0;
    for (; n < OPERANDS; n++)
        args[n] = (dnnl_exec_arg_t){argument[p->key.direction][n], p->operand[n].packed};
    if (p->bias)
        args[n++] =
            (dnnl_exec_arg_t){p->key.direction == TT__CONV_WEIGHT ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, p->bias};
    if (p->scratch)
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->scratch};
    return tt__onednn_get()->dnnl_primitive_execute(p->run, stream, n, args);
}

static dnnl_status_t conv_point_at(dnnl_memory_t memory, void *data) {
    return memory ? tt__onednn_get()->dnnl_memory_set_data_handle(memory, data) : dnnl_success;
}

static char *conv_image_at(const tt_tensor *x, int64_t index) {
    int64_t n = x->shape.dim[0];
    return n ? (char *)x->data + x->numel / n * index * (int64_t)tt_dtype_size(x->dtype) : x->data;
}

/* Say where the tensors of the call lie. */
static dnnl_status_t conv_point_all(const conv_primitive *p, const tt__conv_call *c, const conv_workspace *workspace) {
    void *const at[OPERANDS] = {[IMAGE] = conv_image_at(c->x, c->first),
                                [WEIGHT] = c->dw ? c->dw : c->w->data,
                                [OUTPUT] = conv_image_at(c->y, c->first)};
    dnnl_status_t status = conv_point_at(p->bias, c->dw ? c->db : c->bias ? c->bias->data : NULL);
    if (!status)
        status = conv_point_at(p->scratch, workspace->scratch);
    for (int i = 0; i < OPERANDS && !status; i++) {
        status = conv_point_at(p->operand[i].packed, workspace->packed[i] ? workspace->packed[i] : at[i]);
        if (!status)
            status = conv_point_at(p->operand[i].user, at[i]);
    }
    return status;
}

static dnnl_status_t conv_run_with(dnnl_stream_t stream, const conv_primitive *p, const tt__conv_call *c,
                                   const conv_workspace *workspace) {
    int result = conv_result_of(p->key.direction);
    dnnl_status_t status = conv_point_all(p, c, workspace);
    for (int i = 0; i < OPERANDS && !status; i++)
        if (i != result)
            status = conv_run_reorder(stream, &p->operand[i], false);
    if (!status)
        status = conv_run_primitive(stream, p);
    if (!status)
        status = conv_run_reorder(stream, &p->operand[result], true);
    return status ? status : tt__onednn_get()->dnnl_stream_wait(stream);
}

static dnnl_status_t conv_cached(tt__onednn_cache *cache, const tt__conv_call *c) {
    conv_key key = conv_key_of(c);
    conv_primitive *p = tt__onednn_cache_find(cache, &conv_kind, &key);
    dnnl_status_t status = p ? dnnl_success : conv_add(cache, &key, &p);
    if (status)
        return status;
    conv_workspace workspace;
    status = conv_workspace_take(&workspace, p) ? conv_run_with(tt__onednn_stream(cache), p, c, &workspace)
                                                : dnnl_out_of_memory;
    conv_workspace_free(&workspace);
    return status;
}

tt_status tt__onednn_conv_run(const tt__conv_call *c) {
    if (!tt__onednn_get())
        return tt_last_status();
    tt__parallel_prepare();
    tt__onednn_cache *cache = NULL;
    sigset_t before;
    tt__signals_hold(&before); /* as for any product: see onednn.c */
    dnnl_status_t status = tt__onednn_cache_get(&cache);
    if (!status)
        status = conv_cached(cache, c);
    tt__signals_release(&before);
    if (!status)
        return TT_OK;
    if (status == dnnl_unimplemented && c->x->dtype == TT_BF16)
        return TT_ERR_UNSUPPORTED;
    return tt__fail(status == dnnl_out_of_memory ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                    "oneDNN could not convolve x %s with weight %s: status %d", TT__SHAPE_TEXT(&c->x->shape),
                    TT__SHAPE_TEXT(&c->w->shape), (int)status);
}
