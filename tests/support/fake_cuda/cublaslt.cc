/* A fake of cuBLASLt: the entry points that Tutti uses, by plain loops on the fake's streams. Matrices are stored by
 * columns. It is stricter than the real one: what doesn't fit together is an error, an algorithm works for the
 * descriptions and alignments alone that it was found for, and it fills its workspace with garbage. */
#include "cublaslt.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };
enum { SCHEME_INPLACE = 1, SCHEME_OUTPUT_TYPE = 4 };

std::mutex mutex;
std::map<std::string, long> calls;
std::map<std::string, int> failing;
std::set<const void *> objects;
int refuse_each;
long questions;
uint64_t granted;

/* Count a call of an entry point: is it to fail? */
int enter(const char *name) {
    std::lock_guard<std::mutex> held(mutex);
    calls[name]++;
    auto it = failing.find(name);
    return it == failing.end() ? SUCCESS : it->second;
}
#define ENTER()                         \
    if (int failed = enter(__func__)) { \
        return failed;                  \
    }

template <class T> T *object_new(T *object) {
    std::lock_guard<std::mutex> held(mutex);
    objects.insert(object);
    return object;
}

template <class T> int object_end(T *object) {
    std::lock_guard<std::mutex> held(mutex);
    if (!objects.erase(object))
        return INVALID_VALUE;
    delete object;
    return SUCCESS;
}

bool object_lives(const void *object) {
    std::lock_guard<std::mutex> held(mutex);
    return objects.count(object) > 0;
}

struct layout {
    int type;
    uint64_t rows, columns;
    int64_t lead;
    int32_t batch;
    int64_t step;
};

struct description {
    int compute, scale;
    int32_t turn_a, turn_b;
    uint32_t epilogue;
    const void *bias;
};

struct preference {
    uint64_t workspace;
    uint32_t schemes, alignment[4]; /* of A, B, C, D */
};

struct algorithm {
    uint64_t data[8]; /* what it is for; workspace; schemes; alignments of A, B, D and the bias */
};

struct choice {
    algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* Set an attribute of exactly this size. */
template <class T> int put(T *to, const void *value, size_t size) {
    if (!value || size != sizeof *to)
        return INVALID_VALUE;
    memcpy(to, value, size);
    return SUCCESS;
}

/* ---- do descriptions fit together? ---- */

bool layout_is_whole(const layout *l) {
    return object_lives(l) && l->rows > 0 && l->columns > 0 && l->lead >= (int64_t)l->rows && l->batch > 0;
}

bool types_fit(const description *d, const layout *a, const layout *b, const layout *c) {
    bool wide = a->type == R_64F, narrow = a->type == R_16F || a->type == R_16BF;
    if (b->type != a->type || c->type != a->type || (!wide && !narrow && a->type != R_32F))
        return false;
    return d->compute == (wide ? COMPUTE_64F : COMPUTE_32F) && d->scale == (wide ? R_64F : R_32F);
}

bool sizes_fit(const description *d, const layout *a, const layout *b, const layout *c) {
    uint64_t rows = d->turn_a ? a->columns : a->rows, inner = d->turn_a ? a->rows : a->columns;
    uint64_t columns = d->turn_b ? b->rows : b->columns, inner_b = d->turn_b ? b->columns : b->rows;
    bool apart = c->batch == 1 || c->step >= (int64_t)(c->columns - 1) * c->lead + (int64_t)c->rows ||
                 (c->step >= (int64_t)c->rows && c->lead >= c->step * c->batch); /* batches between the columns */
    return rows == c->rows && columns == c->columns && inner == inner_b && a->batch == c->batch &&
           b->batch == c->batch && apart;
}

bool all_fits(const description *d, const layout *a, const layout *b, const layout *c, const layout *to) {
    return object_lives(d) && layout_is_whole(a) && layout_is_whole(b) && layout_is_whole(c) && layout_is_whole(to) &&
           !memcmp(c, to, sizeof *c) && types_fit(d, a, b, c) && sizes_fit(d, a, b, c) &&
           (d->epilogue == EPILOGUE_DEFAULT || (d->epilogue == EPILOGUE_BIAS && d->bias));
}

/* A number for all that an algorithm depends on. */
uint64_t fingerprint(const description *d, const layout *a, const layout *b, const layout *c) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    auto mix = [&](uint64_t number) { hash = (hash ^ number) * 1099511628211u + 1; };
    for (uint64_t number : {(uint64_t)d->compute, (uint64_t)d->turn_a, (uint64_t)d->turn_b, (uint64_t)d->epilogue})
        mix(number);
    for (const layout *l : {a, b, c})
        for (uint64_t number :
             {(uint64_t)l->type, l->rows, l->columns, (uint64_t)l->lead, (uint64_t)l->batch, (uint64_t)l->step})
            mix(number);
    return hash;
}

uint64_t alignment_of(const void *p) {
    uint64_t alignment = 256;
    while ((uintptr_t)p % alignment)
        alignment /= 2;
    return alignment;
}

/* ---- the product ---- */

double load(int type, const void *p, int64_t i) {
    return type == R_64F   ? ((const double *)p)[i]
           : type == R_32F ? ((const float *)p)[i]
           : type == R_16F ? __half2float(((const __half *)p)[i])
                           : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

void store(int type, void *p, int64_t i, double value) {
    if (type == R_64F)
        ((double *)p)[i] = value;
    else if (type == R_32F)
        ((float *)p)[i] = (float)value;
    else if (type == R_16F)
        ((__half *)p)[i] = __float2half_rn((float)value);
    else
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)value);
}

/* A value as it is between two parts of a sum. */
double rounded(int type, double value) {
    __half storage[4];
    store(type, storage, 0, value);
    return load(type, storage, 0);
}

struct product {
    description d;
    layout a, b, c;
    const void *A, *B, *C;
    void *D, *workspace;
    size_t workspace_bytes;
    double alpha, beta;
    bool rounds; /* parts of sums, as some reduction schemes allow */
};

/* Sums have the computing type. */
template <class W> W product_element(const product &p, int64_t n, int64_t i, int64_t j) {
    int64_t inner = (int64_t)(p.d.turn_a ? p.a.rows : p.a.columns);
    W sum = 0;
    for (int64_t k = 0; k < inner; k++) {
        int64_t at_a = n * p.a.step + (p.d.turn_a ? k + i * p.a.lead : i + k * p.a.lead);
        int64_t at_b = n * p.b.step + (p.d.turn_b ? j + k * p.b.lead : k + j * p.b.lead);
        sum += (W)load(p.a.type, p.A, at_a) * (W)load(p.b.type, p.B, at_b);
        if (p.rounds && k % 4 == 3)
            sum = (W)rounded(p.c.type, (double)sum);
    }
    return sum;
}

template <class W> void product_run(const product &p) {
    if (p.workspace_bytes)
        memset(p.workspace, 0xff, p.workspace_bytes);
    for (int64_t n = 0; n < p.c.batch; n++)
        for (int64_t j = 0; j < (int64_t)p.c.columns; j++)
            for (int64_t i = 0; i < (int64_t)p.c.rows; i++) {
                int64_t at = n * p.c.step + j * p.c.lead + i;
                W value = (W)p.alpha * product_element<W>(p, n, i, j);
                if (p.beta != 0)
                    value += (W)p.beta * (W)load(p.c.type, p.C, at);
                if (p.d.epilogue == EPILOGUE_BIAS)
                    value += (W)load(p.c.type, p.d.bias, i);
                store(p.c.type, p.D, at, (double)value);
            }
}

} /* namespace */

extern "C" {

/* ---- for tests ---- */

long fake_cublaslt_calls(const char *name) {
    std::lock_guard<std::mutex> held(mutex);
    return calls[name];
}

void fake_cublaslt_fail(const char *name, int status) {
    std::lock_guard<std::mutex> held(mutex);
    if (status)
        failing[name] = status;
    else
        failing.erase(name);
}

void fake_cublaslt_refuse(int nth) {
    std::lock_guard<std::mutex> held(mutex);
    refuse_each = nth;
}

long fake_cublaslt_objects() {
    std::lock_guard<std::mutex> held(mutex);
    return (long)objects.size();
}

unsigned long fake_cublaslt_granted() {
    std::lock_guard<std::mutex> held(mutex);
    return granted;
}

/* ---- objects ---- */

int cublasLtCreate(void **handle) {
    static int one;
    ENTER()
    *handle = &one;
    return SUCCESS;
}

int cublasLtDestroy(void *) { return enter(__func__); }

const char *cublasLtGetStatusName(int status) {
    return status == INVALID_VALUE      ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                        : "CUBLAS_STATUS";
}

int cublasLtMatrixLayoutCreate(layout **l, int type, uint64_t rows, uint64_t columns, int64_t lead) {
    ENTER()
    *l = object_new(new layout{type, rows, columns, lead, 1, 0});
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t size) {
    ENTER()
    return !object_lives(l) ? INVALID_VALUE
           : attribute == 5 ? put(&l->batch, value, size)
           : attribute == 6 ? put(&l->step, value, size)
                            : INVALID_VALUE;
}

int cublasLtMatrixLayoutDestroy(layout *l) {
    ENTER()
    return object_end(l);
}

int cublasLtMatmulDescCreate(description **d, int compute, int scale) {
    ENTER()
    *d = object_new(new description{compute, scale, 0, 0, EPILOGUE_DEFAULT, nullptr});
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(description *d, int attribute, const void *value, size_t size) {
    ENTER()
    return !object_lives(d) ? INVALID_VALUE
           : attribute == 3 ? put(&d->turn_a, value, size)
           : attribute == 4 ? put(&d->turn_b, value, size)
           : attribute == 7 ? put(&d->epilogue, value, size)
           : attribute == 8 ? put(&d->bias, value, size)
                            : INVALID_VALUE;
}

int cublasLtMatmulDescDestroy(description *d) {
    ENTER()
    return object_end(d);
}

int cublasLtMatmulPreferenceCreate(preference **p) {
    ENTER()
    *p = object_new(new preference{0, 7, {256, 256, 256, 256}});
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size) {
    ENTER()
    return !object_lives(p)                   ? INVALID_VALUE
           : attribute == 1                   ? put(&p->workspace, value, size)
           : attribute == 3                   ? put(&p->schemes, value, size)
           : attribute >= 5 && attribute <= 8 ? put(&p->alignment[attribute - 5], value, size)
                                              : INVALID_VALUE;
}

#ifndef FAKE_CUBLASLT_OLD
int cublasLtMatmulPreferenceDestroy(preference *p) {
    ENTER()
    return object_end(p);
}
#endif

/* ---- products ---- */

static bool is_refused() {
    std::lock_guard<std::mutex> held(mutex);
    return refuse_each && ++questions % refuse_each == 0;
}

/* f64 has no bias. A long sum takes workspace, if there may be some. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, description *d, layout *a, layout *b, layout *c, layout *to,
                                   preference *wish, int most, choice *choices, int *count) {
    ENTER()
    *count = 0;
    if (!handle || !object_lives(wish) || most < 1 || !all_fits(d, a, b, c, to))
        return INVALID_VALUE;
    if (d->epilogue == EPILOGUE_BIAS && a->type == R_64F)
        return NOT_SUPPORTED;
    if (is_refused())
        return SUCCESS;
    std::lock_guard<std::mutex> held(mutex);
    size_t bytes = a->columns + a->rows > 8 && wish->workspace >= 4096 ? 4096 : 0;
    granted = wish->workspace;
    *choices = choice();
    choices->algo = {{fingerprint(d, a, b, c), bytes, wish->schemes, wish->alignment[0], wish->alignment[1],
                      wish->alignment[3], d->bias ? alignment_of(d->bias) : 1, 0}};
    choices->workspace = bytes;
    *count = 1;
    return SUCCESS;
}

static bool algorithm_fits(const algorithm *algo, const description *d, const layout *a, const layout *b,
                           const layout *c, const product &p) {
    const uint64_t *at = algo->data;
    return at[0] == fingerprint(d, a, b, c) && (uintptr_t)p.A % at[3] == 0 && (uintptr_t)p.B % at[4] == 0 &&
           (uintptr_t)p.D % at[5] == 0 && (uintptr_t)d->bias % at[6] == 0;
}

int cublasLtMatmul(void *handle, description *d, const void *alpha, const void *A, layout *a, const void *B, layout *b,
                   const void *beta, const void *C, layout *c, void *D, layout *to, const algorithm *algo,
                   void *workspace, size_t bytes, cudaStream_t stream) {
    ENTER()
    if (!handle || !algo || !A || !B || !D || C != D || !all_fits(d, a, b, c, to))
        return INVALID_VALUE;
    bool wide = d->scale == R_64F, narrow = c->type == R_16F || c->type == R_16BF;
    product p = {*d,
                 *a,
                 *b,
                 *c,
                 A,
                 B,
                 C,
                 D,
                 workspace,
                 (size_t)algo->data[1],
                 wide ? *(const double *)alpha : *(const float *)alpha,
                 wide ? *(const double *)beta : *(const float *)beta,
                 narrow && (algo->data[2] & (SCHEME_INPLACE | SCHEME_OUTPUT_TYPE))};
    if (bytes < p.workspace_bytes || (p.workspace_bytes && (!workspace || (uintptr_t)workspace % 256)) ||
        !algorithm_fits(algo, d, a, b, c, p))
        return INVALID_VALUE;
    if (d->epilogue == EPILOGUE_BIAS)
        enter("with a bias");
    cudaError_t error =
        fake_launch(1, 1, false, stream, [=] { wide ? product_run<double>(p) : product_run<float>(p); });
    return error ? EXECUTION_FAILED : SUCCESS;
}
}
