#include "tensor/cpu/onednn/onednn_library.h"

#include "base/error.h"
#include "base/process/threads.h"
#include "tensor/device/parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define STRING_(text) #text
#define STRING(text) STRING_(text)
#define LIBRARY "libdnnl.so." STRING(DNNL_VERSION_MAJOR)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__onednn functions;
static char why_not[512]; /* "": it is there */
static bool too_little_memory;

static void note_why_not(const char *why) { snprintf(why_not, sizeof why_not, "%s", why ? why : "no reason given"); }

/* oneDNN makes kernels in its first product, and crashes if that fails. So check that there is memory, and have them
 * made now, before memory is short. */
static bool make_first_product(void) {
    enum { NEEDED = 32 << 20, SIZE = 16 };
    static float a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
    void *room = mmap(NULL, NEEDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || munmap(room, NEEDED))
        return false;
    sigset_t before;
    tt__signals_hold(&before);
    dnnl_status_t status = functions.dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
    tt__signals_release(&before);
    return status == dnnl_success;
}

/* With ONEDNN_JIT_DUMP oneDNN writes files into the working directory: forbid it in a process with more rights than its
 * caller. */
static void forbid_dumps(void *library) {
    dnnl_status_t (*set_dump)(int enable);
    *(void **)&set_dump = dlsym(library, "dnnl_set_jit_dump");
    if (set_dump && getauxval(AT_SECURE))
        set_dump(0);
}

/* Load oneDNN, which stays until the process ends, as its threads and caches do. */
static void load_onednn(void) {
    tt__openmp_wait_briefly();
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        note_why_not(dlerror());
        return;
    }
    forbid_dumps(library);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (!(TT__ONEDNN_FUNCTIONS(FIND) true))
        note_why_not(dlerror());
    else
        too_little_memory = !make_first_product();
#undef FIND
}

const tt__onednn *tt__onednn_get(void) {
    pthread_once(&once, load_onednn);
    if (*why_not)
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "products and convolutions of f32 need oneDNN, which can't be loaded: %s. Tutti was built for " LIBRARY
            " (Debian: libdnnl" STRING(DNNL_VERSION_MAJOR) ")",
            why_not);
    if (too_little_memory)
        return tt__fail_null(TT_ERR_MEMORY,
                             "no memory for oneDNN, which needs 32 MiB to begin with (ulimit -v limits it)");
    return &functions;
}

/* ---- what versions spell differently */

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_create_with_strides(memory, ndims, dims, type, stride)
                  : onednn->dnnl_memory_desc_create_with_tag(memory, ndims, dims, type, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) {
    if (*memory)
        tt__onednn_get()->dnnl_memory_desc_destroy(*memory);
    *memory = NULL;
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    return tt__onednn_get()->dnnl_convolution_forward_primitive_desc_create(
        made, engine, dnnl_forward_training, alg, c->x, c->w, c->bias ? c->b : NULL, c->y, c->stride, c->dilation,
        c->padding, c->padding, attr);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                       dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                       const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    if (c->direction == TT__CONV_DATA)
        return onednn->dnnl_convolution_backward_data_primitive_desc_create(
            made, engine, alg, c->x, c->w, c->y, c->stride, c->dilation, c->padding, c->padding, forward, attr);
    return onednn->dnnl_convolution_backward_weights_primitive_desc_create(
        made, engine, alg, c->x, c->w, c->bias ? c->b : NULL, c->y, c->stride, c->dilation, c->padding, c->padding,
        forward, attr);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *made, const tt__onednn_memory *m, bool bias,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    return tt__onednn_get()->dnnl_matmul_primitive_desc_create(made, engine, m[0], m[1], bias ? m[3] : NULL, m[2],
                                                               attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return tt__onednn_get()->dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_init_by_strides(memory, ndims, dims, type, stride)
                  : onednn->dnnl_memory_desc_init_by_tag(memory, ndims, dims, type, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) { (void)memory; }

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = onednn->dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, alg, &c->x, &c->w, c->bias ? &c->b : NULL, &c->y, c->stride, c->dilation,
        c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, NULL);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                       dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                       const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        c->direction == TT__CONV_DATA
            ? onednn->dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, &c->x, &c->w, &c->y, c->stride,
                                                                       c->dilation, c->padding, c->padding)
            : onednn->dnnl_dilated_convolution_backward_weights_desc_init(&desc, alg, &c->x, &c->w,
                                                                          c->bias ? &c->b : NULL, &c->y, c->stride,
                                                                          c->dilation, c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, forward);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *made, const tt__onednn_memory *m, bool bias,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = onednn->dnnl_matmul_desc_init(&desc, &m[0], &m[1], bias ? &m[3] : NULL, &m[2]);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, NULL);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return tt__onednn_get()->dnnl_post_ops_append_sum(ops, 1); }

#endif

dnnl_status_t tt__onednn_product_describe(dnnl_primitive_desc_t *made, const tt__onednn_memory *m,
                                          tt__product_adds adds, dnnl_engine_t engine) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = onednn->dnnl_primitive_attr_create(&attr);
    if (!status)
        status = onednn->dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!status && adds == TT__ADDS_TO_Y)
        status = onednn->dnnl_post_ops_create(&ops);
    if (!status && ops)
        status = append_sum(ops);
    if (!status && ops)
        status = onednn->dnnl_primitive_attr_set_post_ops(attr, ops);
    if (!status)
        status = describe_product(made, m, adds == TT__ADDS_BIAS, engine, attr);
    if (ops)
        onednn->dnnl_post_ops_destroy(ops);
    if (attr)
        onednn->dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t describe_conv_by(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    if (conv->direction == TT__CONV_FORWARD)
        return describe_forward(made, conv, alg, engine, attr);
    dnnl_primitive_desc_t forward = NULL; /* a hint that backward asks for */
    dnnl_status_t status = describe_forward(&forward, conv, alg, engine, NULL);
    if (!status)
        status = describe_backward(made, conv, alg, engine, attr, forward);
    if (forward)
        tt__onednn_get()->dnnl_primitive_desc_destroy(forward);
    return status;
}

dnnl_status_t tt__onednn_conv_describe(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr) {
    if (conv->winograd && !describe_conv_by(made, conv, dnnl_convolution_winograd, engine, attr))
        return dnnl_success;
    return describe_conv_by(made, conv, dnnl_convolution_direct, engine, attr);
}

/* ---- primitives of a thread */

/* More kinds of calls than a large model has in both directions. */
enum { KEPT = 512 };

typedef struct kept_primitive {
    const tt__onednn_kind *kind;
    void *primitive;
    uint64_t used; /* number of the call that used it last */
} kept_primitive;

struct tt__onednn_cache {
    dnnl_stream_t stream;
    int n, last; /* last: where the last one was found or added */
    uint64_t calls;
    kept_primitive kept[KEPT];
};

static dnnl_engine_t engine_of_all;
static pthread_key_t onednn_cache_key;
static pthread_once_t onednn_cache_once = PTHREAD_ONCE_INIT;
static dnnl_status_t onednn_cache_ready;

static void onednn_cache_free(void *user) {
    tt__onednn_cache *cache = user;
    for (int i = 0; i < cache->n; i++)
        cache->kept[i].kind->free(cache->kept[i].primitive);
    if (cache->stream)
        tt__onednn_get()->dnnl_stream_destroy(cache->stream);
    free(cache);
}

static void onednn_cache_begin(void) {
    onednn_cache_ready = pthread_key_create(&onednn_cache_key, onednn_cache_free) ? dnnl_out_of_memory : dnnl_success;
    if (!onednn_cache_ready)
        onednn_cache_ready = tt__onednn_get()->dnnl_engine_create(&engine_of_all, dnnl_cpu, 0);
}

dnnl_status_t tt__onednn_cache_get(tt__onednn_cache **cache) {
    pthread_once(&onednn_cache_once, onednn_cache_begin);
    *cache = onednn_cache_ready ? NULL : pthread_getspecific(onednn_cache_key);
    if (onednn_cache_ready || *cache)
        return onednn_cache_ready;
    tt__onednn_cache *made = calloc(1, sizeof *made);
    if (!made)
        return dnnl_out_of_memory;
    dnnl_status_t status =
        tt__onednn_get()->dnnl_stream_create(&made->stream, engine_of_all, dnnl_stream_default_flags);
    if (!status && pthread_setspecific(onednn_cache_key, made))
        status = dnnl_out_of_memory;
    if (status)
        onednn_cache_free(made);
    else
        *cache = made;
    return status;
}

dnnl_engine_t tt__onednn_engine(void) { return engine_of_all; }

dnnl_stream_t tt__onednn_stream(const tt__onednn_cache *cache) { return cache->stream; }

void *tt__onednn_cache_find(tt__onednn_cache *cache, const tt__onednn_kind *kind, const void *key) {
    int at = cache->last;
    for (int i = 0; i < cache->n; i++) {
        at = at + 1 < cache->n ? at + 1 : 0;
        kept_primitive *kept = &cache->kept[at];
        if (kept->kind == kind && !memcmp(kept->primitive, key, kind->key_size)) {
            cache->last = at;
            kept->used = ++cache->calls;
            return kept->primitive;
        }
    }
    return NULL;
}

/* Return the place for one more primitive: a free one, or that of the primitive unused for longest, which is freed. */
static int onednn_cache_place(tt__onednn_cache *cache) {
    if (cache->n < KEPT)
        return cache->n++;
    int oldest = 0;
    for (int i = 1; i < KEPT; i++)
        if (cache->kept[i].used < cache->kept[oldest].used)
            oldest = i;
    cache->kept[oldest].kind->free(cache->kept[oldest].primitive);
    return oldest;
}

void tt__onednn_cache_add(tt__onednn_cache *cache, const tt__onednn_kind *kind, void *primitive) {
    cache->last = onednn_cache_place(cache);
    cache->kept[cache->last] = (kept_primitive){.kind = kind, .primitive = primitive, .used = ++cache->calls};
}
