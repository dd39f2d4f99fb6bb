/* A fake of cuDNN's backend interface: the entry points, descriptors and attributes that Tutti uses for convolutions
 * and attention, which run by plain loops on the fake's streams (cudnn_run.h, cudnn_steps.h). It is stricter than the
 * real one: each attribute has one type and count, is set before its descriptor is finalized, and refers to finalized
 * descriptors alone. Its engines are in an order in which those come first that must not be used. */
#include "cudnn.h"
#include "cudnn_descriptor.h"
#include "cudnn_steps.h"

#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

using namespace fake_cudnn;

namespace {

/* Attributes that may be set, all of which must be, but those of which 0 are enough. `type` AS_FLOAT: or AS_DOUBLE, as
 * the computing type is. */
const struct {
    int kind, name, type;
    int64_t least, most;
} attributes[] = {{CONVOLUTION, 100, AS_DATA_TYPE, 1, 1},
                  {CONVOLUTION, 101, AS_CONV_MODE, 1, 1},
                  {CONVOLUTION, 102, AS_INT64, 2, 2},
                  {CONVOLUTION, 103, AS_INT64, 2, 2},
                  {CONVOLUTION, 104, AS_INT64, 2, 2},
                  {CONVOLUTION, 105, AS_INT64, 2, 2},
                  {CONVOLUTION, 106, AS_INT64, 1, 1},
                  {HEURISTICS, 200, AS_HEUR_MODE, 1, 1},
                  {HEURISTICS, 201, AS_DESCRIPTOR, 1, 1},
                  {PLAN, 400, AS_HANDLE, 1, 1},
                  {PLAN, 401, AS_DESCRIPTOR, 1, 1},
                  {OP_FORWARD, 700, AS_FLOAT, 1, 1},
                  {OP_FORWARD, 701, AS_FLOAT, 1, 1},
                  {OP_FORWARD, 702, AS_DESCRIPTOR, 1, 1},
                  {OP_FORWARD, 703, AS_DESCRIPTOR, 1, 1},
                  {OP_FORWARD, 704, AS_DESCRIPTOR, 1, 1},
                  {OP_FORWARD, 705, AS_DESCRIPTOR, 1, 1},
                  {OP_DATA, 706, AS_FLOAT, 1, 1},
                  {OP_DATA, 707, AS_FLOAT, 1, 1},
                  {OP_DATA, 708, AS_DESCRIPTOR, 1, 1},
                  {OP_DATA, 709, AS_DESCRIPTOR, 1, 1},
                  {OP_DATA, 710, AS_DESCRIPTOR, 1, 1},
                  {OP_DATA, 711, AS_DESCRIPTOR, 1, 1},
                  {OP_WEIGHT, 712, AS_FLOAT, 1, 1},
                  {OP_WEIGHT, 713, AS_FLOAT, 1, 1},
                  {OP_WEIGHT, 714, AS_DESCRIPTOR, 1, 1},
                  {OP_WEIGHT, 715, AS_DESCRIPTOR, 1, 1},
                  {OP_WEIGHT, 716, AS_DESCRIPTOR, 1, 1},
                  {OP_WEIGHT, 717, AS_DESCRIPTOR, 1, 1},
                  {GRAPH, 800, AS_HANDLE, 1, 1},
                  {GRAPH, 801, AS_DESCRIPTOR, 1, 64},
                  {TENSOR, 900, AS_INT64, 1, 1},
                  {TENSOR, 901, AS_DATA_TYPE, 1, 1},
                  {TENSOR, 902, AS_INT64, 4, 4},
                  {TENSOR, 903, AS_INT64, 4, 4},
                  {TENSOR, 906, AS_INT64, 1, 1},
                  {PACK, 1000, AS_INT64, 1, 16},
                  {PACK, 1001, AS_POINTER, 1, 16},
                  {PACK, 1003, AS_POINTER, 1, 1},
                  {TENSOR, 907, AS_BOOL, 0, 1},
                  {TENSOR, 908, AS_BOOL, 0, 1},
                  {POINTWISE, 0, AS_POINTWISE_MODE, 1, 1},
                  {POINTWISE, 1, AS_DATA_TYPE, 1, 1},
                  {POINTWISE, 9, AS_INT64, 0, 1},
                  {OP_POINTWISE, 750, AS_DESCRIPTOR, 1, 1},
                  {OP_POINTWISE, 751, AS_DESCRIPTOR, 1, 1},
                  {OP_POINTWISE, 752, AS_DESCRIPTOR, 0, 1},
                  {OP_POINTWISE, 753, AS_DESCRIPTOR, 1, 1},
                  {OP_POINTWISE, 758, AS_DESCRIPTOR, 0, 1},
                  {MATMUL, 1500, AS_DATA_TYPE, 1, 1},
                  {OP_MATMUL, 1520, AS_DESCRIPTOR, 1, 1},
                  {OP_MATMUL, 1521, AS_DESCRIPTOR, 1, 1},
                  {OP_MATMUL, 1522, AS_DESCRIPTOR, 1, 1},
                  {OP_MATMUL, 1523, AS_DESCRIPTOR, 1, 1},
                  {REDUCTION, 1600, AS_REDUCTION_MODE, 1, 1},
                  {REDUCTION, 1601, AS_DATA_TYPE, 1, 1},
                  {OP_REDUCTION, 1610, AS_DESCRIPTOR, 1, 1},
                  {OP_REDUCTION, 1611, AS_DESCRIPTOR, 1, 1},
                  {OP_REDUCTION, 1612, AS_DESCRIPTOR, 1, 1},
                  {OP_RESHAPE, 2200, AS_DESCRIPTOR, 1, 1},
                  {OP_RESHAPE, 2201, AS_DESCRIPTOR, 1, 1}};

struct handle {
    cudaStream_t stream;
    bool has_stream;
};

std::mutex mutex;
std::map<std::string, long> calls;
std::set<const void *> objects;
std::string failing;
int fail_each_or, fail_status, refuse_each;
long all_calls, seen, graphs;
size_t version = 91900;

/* Count a call of an entry point: is it to fail? */
int enter(const char *name) {
    std::lock_guard<std::mutex> held(mutex);
    calls[name]++;
    all_calls++;
    if (!fail_status || (!failing.empty() && failing != name))
        return SUCCESS;
    return ++seen == fail_each_or || !fail_each_or ? fail_status : SUCCESS;
}
#define ENTER()                         \
    if (int failed = enter(__func__)) { \
        return failed;                  \
    }

template <class T> T *note_new(T *object) {
    std::lock_guard<std::mutex> held(mutex);
    objects.insert(object);
    return object;
}

template <class T> int note_end(T *object) {
    std::lock_guard<std::mutex> held(mutex);
    if (!objects.erase(object))
        return BAD_PARAM;
    delete object;
    return SUCCESS;
}

size_t size_of(int type) {
    bool is_int = type == AS_DATA_TYPE || type == AS_CONV_MODE || type == AS_HEUR_MODE || type == AS_NOTE ||
                  type == AS_POINTWISE_MODE || type == AS_REDUCTION_MODE;
    return type == AS_BOOL ? 1 : is_int || type == AS_FLOAT ? 4 : 8;
}

bool kind_is_known(int kind) {
    for (const auto &a : attributes)
        if (a.kind == kind)
            return true;
    return kind == ENGINE || kind == CONFIG;
}

bool all_are_set(const descriptor *d) {
    for (const auto &a : attributes)
        if (a.kind == d->kind && a.least && !d->set.count(a.name))
            return false;
    return true;
}

/* ---- reading ---- */

/* Fill empty descriptors of this kind, one for an engine. */
int give_engines(const std::vector<engine> &engines, int kind, int64_t most, int64_t *count, descriptor **to) {
    int64_t n = (int64_t)engines.size();
    *count = most ? (most < n ? most : n) : n;
    for (int64_t i = 0; i < *count && most; i++) {
        if (!object_lives(to[i]) || to[i]->kind != kind || to[i]->finalized)
            return BAD_PARAM;
        to[i]->engines = {engines[(size_t)i]};
        to[i]->finalized = true;
    }
    return SUCCESS;
}

int give_notes(const engine &e, int64_t most, int64_t *count, int *to) {
    *count = e.note_count;
    for (int i = 0; i < e.note_count && i < most; i++)
        to[i] = e.notes[i];
    return SUCCESS;
}

} /* namespace */

bool fake_cudnn::object_lives(const void *object) {
    std::lock_guard<std::mutex> held(mutex);
    return objects.count(object) > 0;
}

bool fake_cudnn::graph_is_refused() {
    std::lock_guard<std::mutex> held(mutex);
    return refuse_each && ++graphs % refuse_each == 0;
}

extern "C" {

/* ---- for tests ---- */

long fake_cudnn_calls(const char *name) {
    std::lock_guard<std::mutex> held(mutex);
    return name ? calls[name] : all_calls;
}

void fake_cudnn_fail(const char *name, int n, int status) {
    std::lock_guard<std::mutex> held(mutex);
    failing = name ? name : "";
    fail_each_or = n;
    fail_status = status;
    seen = 0;
}

void fake_cudnn_refuse(int nth) {
    std::lock_guard<std::mutex> held(mutex);
    refuse_each = nth;
}

void fake_cudnn_be(size_t new_version) { version = new_version; }

long fake_cudnn_objects() {
    std::lock_guard<std::mutex> held(mutex);
    return (long)objects.size();
}

/* ---- the interface ---- */

size_t cudnnGetVersion() { return version; }

const char *cudnnGetErrorString(int status) {
    return status / 1000 == 2   ? "CUDNN_STATUS_BAD_PARAM"
           : status / 1000 == 3 ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == 4000     ? "CUDNN_STATUS_INTERNAL_ERROR"
           : status == 5000     ? "CUDNN_STATUS_EXECUTION_FAILED"
                                : "CUDNN_STATUS";
}

int cudnnCreate(handle **h) {
    ENTER()
    *h = note_new(new handle{nullptr, false});
    return SUCCESS;
}

int cudnnDestroy(handle *h) {
    enter(__func__);
    return note_end(h);
}

int cudnnSetStream(handle *h, cudaStream_t stream) {
    ENTER()
    if (!object_lives(h))
        return BAD_PARAM;
    *h = {stream, true};
    return SUCCESS;
}

int cudnnBackendCreateDescriptor(int kind, descriptor **d) {
    ENTER()
    if (!kind_is_known(kind))
        return BAD_PARAM;
    *d = note_new(new descriptor());
    (*d)->kind = kind;
    return SUCCESS;
}

/* Ending one never fails. */
int cudnnBackendDestroyDescriptor(descriptor *d) {
    enter(__func__);
    return note_end(d);
}

int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *list) {
    ENTER()
    if (!object_lives(d) || d->finalized || !list)
        return list ? BAD_PARAM : NULL_POINTER;
    for (const auto &a : attributes) {
        if (a.kind != d->kind || a.name != name)
            continue;
        if (type != a.type && !(a.type == AS_FLOAT && type == AS_DOUBLE))
            return ATTRIBUTE_TYPE;
        if (count < 1 || count < a.least || count > a.most)
            return OUT_OF_BOUND;
        descriptor *const *other = (descriptor *const *)list;
        for (int64_t i = 0; type == AS_DESCRIPTOR && i < count; i++)
            if (!object_lives(other[i]) || !other[i]->finalized)
                return NOT_FINALIZED;
        const char *bytes = (const char *)list;
        d->set[name] = {type, count, std::vector<char>(bytes, bytes + (size_t)count * size_of(type))};
        return SUCCESS;
    }
    return BAD_PARAM;
}

int cudnnBackendFinalize(descriptor *d) {
    ENTER()
    if (!object_lives(d) || d->finalized || !all_are_set(d))
        return BAD_PARAM;
    int status = descriptor_finalize(d);
    d->finalized = !status;
    return status;
}

int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t most, int64_t *count, void *list) {
    ENTER()
    if (!object_lives(d) || !d->finalized)
        return NOT_FINALIZED;
    if (d->kind == HEURISTICS && name == 202 && type == AS_DESCRIPTOR)
        return give_engines(d->engines, CONFIG, most, count, (descriptor **)list);
    if (d->kind == CONFIG && name == 300 && type == AS_DESCRIPTOR && most == 1)
        return give_engines(d->engines, ENGINE, most, count, (descriptor **)list);
    if (d->kind == ENGINE && name == 1303 && type == AS_NOTE)
        return give_notes(d->engines[0], most, count, (int *)list);
    if (d->kind != PLAN || name != 402 || type != AS_INT64 || most != 1)
        return BAD_PARAM;
    *count = 1;
    *(int64_t *)list = d->engines[0].workspace;
    return SUCCESS;
}

#ifndef FAKE_CUDNN_OLD
int cudnnBackendExecute(handle *h, descriptor *plan, descriptor *pack) {
    ENTER()
    if (!object_lives(h) || !h->has_stream || !object_lives(plan) || !plan->finalized || plan->kind != PLAN ||
        !object_lives(pack) || !pack->finalized || pack->kind != PACK)
        return BAD_PARAM;
    const engine e = plan->engines[0];
    void *p[3], *workspace = pack->workspace;
    if (e.workspace && (!workspace || (uintptr_t)workspace % 256))
        return MISALIGNED;
    if (!e.steps.empty())
        return steps_enqueue(e, pack->pointers, workspace, h->stream);
    const tensor *const tensors[] = {&e.op.x, &e.op.y, &e.op.w};
    for (int i = 0; i < 3; i++) {
        p[i] = pack->pointers.count(tensors[i]->name) ? pack->pointers[tensors[i]->name] : nullptr;
        if (!p[i] || (uintptr_t)p[i] % (uintptr_t)tensors[i]->alignment)
            return p[i] ? MISALIGNED : NULL_POINTER;
    }
    cudaError_t error = fake_launch(1, 1, false, h->stream, [=] { operation_run(e, p[0], p[1], p[2], workspace); });
    return error ? EXECUTION_FAILED : SUCCESS;
}
#endif
}
