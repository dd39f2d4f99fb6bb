/* What finalizing a descriptor of the fake of cuDNN checks and means, by kind. */
#include "cudnn_descriptor.h"
#include "cudnn_steps.h"

#include <cstring>

namespace fake_cudnn {

namespace {

const int64_t TOO_MUCH = (int64_t)1 << 40;

/* Read what was set. */
template <class T> void read(const descriptor *d, int name, T *to) {
    const value &v = d->set.at(name);
    memcpy(to, v.bytes.data(), v.bytes.size());
}

const descriptor *referred(const descriptor *d, int name) {
    const descriptor *other;
    read(d, name, &other);
    return other;
}

/* ---- what finalizing checks, by kind ---- */

int finalize_tensor(descriptor *d) {
    tensor &t = d->t;
    read(d, 900, &t.alignment);
    read(d, 901, &t.type);
    read(d, 902, t.dim);
    read(d, 903, t.stride);
    read(d, 906, &t.name);
    for (int i = 0; i < 4; i++)
        if (t.dim[i] <= 0 || t.stride[i] <= 0)
            return BAD_PARAM;
    t.is_virtual = d->set.count(907);
    t.by_value = d->set.count(908);
    bool known = t.type == FLOAT || t.type == DOUBLE || t.type == HALF || t.type == BFLOAT16;
    if (t.type == INT32 || t.type == BOOLEAN)
        known = t.is_virtual;
    return known && t.alignment > 0 && t.alignment % type_size(t.type) == 0 ? SUCCESS : BAD_PARAM;
}

int finalize_window(descriptor *d) {
    window &w = d->win;
    int mode;
    int64_t dims;
    read(d, 100, &w.compute);
    read(d, 101, &mode);
    read(d, 102, w.dilation);
    read(d, 103, w.stride);
    read(d, 104, w.after);
    read(d, 105, w.before);
    read(d, 106, &dims);
    for (int i = 0; i < 2; i++)
        if (w.dilation[i] < 1 || w.stride[i] < 1 || w.before[i] < 0 || w.after[i] < 0)
            return BAD_PARAM;
    return mode == 1 && dims == 2 && (w.compute == FLOAT || w.compute == DOUBLE) ? SUCCESS : BAD_PARAM;
}

double read_factor(const descriptor *d, int name) {
    float narrow;
    double wide;
    if (d->set.at(name).type == AS_DOUBLE) {
        read(d, name, &wide);
        return wide;
    }
    read(d, name, &narrow);
    return narrow;
}

int finalize_operation(descriptor *d) {
    static const int names[3][6] = {
        {704, 705, 703, 702, 700, 701}, {716, 717, 715, 714, 712, 713}, {710, 711, 709, 708, 706, 707}};
    const int *name = names[d->kind - OP_FORWARD];
    for (int i = 0; i < 4; i++)
        if (referred(d, name[i])->kind != (i < 3 ? TENSOR : CONVOLUTION))
            return DESCRIPTOR_TYPE;
    d->op = {
        (direction)(d->kind - OP_FORWARD), referred(d, name[0])->t, referred(d, name[1])->t, referred(d, name[2])->t,
        referred(d, name[3])->win,         read_factor(d, name[4]), read_factor(d, name[5])};
    int type = d->op.win.compute == DOUBLE ? AS_DOUBLE : AS_FLOAT;
    if (d->set.at(name[4]).type != type || d->set.at(name[5]).type != type)
        return ATTRIBUTE_TYPE;
    return operation_fits(d->op) ? SUCCESS : BAD_PARAM;
}

/* The functions of steps. */
int finalize_function(descriptor *d) {
    static const struct {
        int kind, mode, compute;
    } names[] = {{POINTWISE, 0, 1}, {MATMUL, -1, 1500}, {REDUCTION, 1600, 1601}};
    for (const auto &n : names) {
        int compute;
        if (n.kind != d->kind)
            continue;
        read(d, n.compute, &compute);
        if (n.mode >= 0)
            read(d, n.mode, &d->how.mode);
        d->how.axis = -1;
        if (d->set.count(9))
            read(d, 9, &d->how.axis);
        bool tells = d->kind == POINTWISE && d->how.mode == AT_LEAST;
        return compute == (tells ? BOOLEAN : FLOAT) ? SUCCESS : BAD_PARAM;
    }
    return DESCRIPTOR_TYPE;
}

int finalize_step(descriptor *d) {
    static const struct {
        int kind, function, how, x, b, t, y;
    } names[] = {{OP_POINTWISE, POINTWISE, 750, 751, 752, 758, 753},
                 {OP_MATMUL, MATMUL, 1523, 1520, 1521, 0, 1522},
                 {OP_REDUCTION, REDUCTION, 1612, 1610, 0, 0, 1611},
                 {OP_RESHAPE, 0, 0, 2200, 0, 0, 2201}};
    for (const auto &n : names) {
        if (n.kind != d->kind)
            continue;
        if (n.how && referred(d, n.how)->kind != n.function)
            return DESCRIPTOR_TYPE;
        if (n.how)
            d->how = referred(d, n.how)->how;
        d->how.kind = d->kind;
        d->how.has_b = d->set.count(n.b);
        d->how.has_t = d->set.count(n.t);
        tensor *const to[] = {&d->how.x, &d->how.y, &d->how.b, &d->how.t};
        const int from[] = {n.x, n.y, d->how.has_b ? n.b : 0, d->how.has_t ? n.t : 0};
        for (int i = 0; i < 4; i++) {
            if (from[i] && referred(d, from[i])->kind != TENSOR)
                return DESCRIPTOR_TYPE;
            if (from[i])
                *to[i] = referred(d, from[i])->t;
        }
        return step_fits(d->how) ? SUCCESS : BAD_PARAM;
    }
    return DESCRIPTOR_TYPE;
}

int finalize_graph(descriptor *d) {
    const void *h;
    const value &list = d->set.at(801);
    std::vector<const descriptor *> ops((size_t)list.count);
    memcpy(ops.data(), list.bytes.data(), list.bytes.size());
    read(d, 800, &h);
    if (!object_lives(h))
        return DESCRIPTOR_TYPE;
    d->refused = graph_is_refused();
    d->op = ops[0]->op;
    if (ops[0]->kind >= OP_FORWARD && ops[0]->kind <= OP_DATA)
        return ops.size() == 1 ? SUCCESS : GRAPH_PATTERN;
    for (const descriptor *op : ops) {
        if (op->kind != OP_POINTWISE && op->kind != OP_MATMUL && op->kind != OP_REDUCTION && op->kind != OP_RESHAPE)
            return DESCRIPTOR_TYPE;
        d->steps.push_back(op->how);
    }
    return steps_fit(d->steps) ? SUCCESS : BAD_PARAM;
}

/* Dense, and contiguous or with channels last. */
bool lies_as(const tensor &t, bool channels_last) {
    const int64_t *d = t.dim, C = channels_last ? d[1] : 1;
    const int64_t stride[4] = {d[1] * d[2] * d[3], channels_last ? 1 : d[2] * d[3], d[3] * C, C};
    return !memcmp(stride, t.stride, sizeof stride);
}

bool all_lie_as(const operation &op, bool channels_last) {
    return lies_as(op.x, channels_last) && lies_as(op.y, channels_last) && lies_as(op.w, channels_last);
}

/* The useful ones come last. A long sum takes workspace. */
std::vector<engine> engines_of(const descriptor *graph, int mode) {
    const operation &op = graph->op;
    bool f32 = op.x.type == FLOAT;
    int64_t bytes = op.w.dim[1] * op.w.dim[2] * op.w.dim[3] > 8 ? 4096 : 0;
    std::vector<engine> list = {{op, {NONDETERMINISTIC}, 1, NOISY, 0, false, {}}};
    if (mode == MODE_A) {
        list.push_back({op, {WINOGRAD}, 1, NOISY, 0, false, {}});
        list.push_back({op, {TENSOR_CORE, FFT}, 2, NOISY, 0, false, {}});
        list.push_back({op, {DOWN_CONVERTS}, 1, f32 ? AS_TF32 : NOISY, 0, false, {}});
        list.push_back({op, {TENSOR_CORE, REDUCED_PRECISION}, 2, f32 ? NOISY : ROUNDS_PARTS, 0, false, {}});
        list.push_back({op, {}, 0, NOISY, 0, true, {}});
        list.push_back({op, {}, 0, NOISY, TOO_MUCH, false, {}});
        if (!graph->refused || f32)
            list.push_back({op, {TENSOR_CORE}, 1, f32 ? AS_TF32 : EXACT, bytes, false, {}});
    }
    if (!graph->refused)
        list.push_back({op, {}, 0, EXACT, bytes, false, {}});
    return list;
}

/* The useful one comes last. */
std::vector<engine> engines_of_steps(const descriptor *graph, int mode) {
    std::vector<engine> list = {{{}, {NONDETERMINISTIC}, 1, NOISY, 0, false, {}}};
    if (mode == MODE_A) {
        list.push_back({{}, {TENSOR_CORE, DOWN_CONVERTS}, 2, NOISY, 0, false, {}});
        list.push_back({{}, {}, 0, NOISY, 0, true, {}});
        list.push_back({{}, {}, 0, NOISY, TOO_MUCH, false, {}});
    }
    if (!graph->refused)
        list.push_back({{}, {TENSOR_CORE}, 1, EXACT, 4096, false, {}});
    for (engine &e : list)
        e.steps = graph->steps;
    return list;
}

int finalize_heuristics(descriptor *d) {
    int mode;
    const descriptor *graph = referred(d, 201);
    read(d, 200, &mode);
    if (graph->kind != GRAPH || (mode != MODE_A && mode != MODE_FALLBACK))
        return BAD_PARAM;
    if (!graph->steps.empty()) {
        d->engines = engines_of_steps(graph, mode);
        return steps_suit(graph->steps) ? SUCCESS : LAYOUT;
    }
    if (!all_lie_as(graph->op, false) && !all_lie_as(graph->op, true))
        return LAYOUT;
    if (mode == MODE_A && graph->op.x.type == DOUBLE)
        return DATA_TYPE;
    d->engines = engines_of(graph, mode);
    return SUCCESS;
}

int finalize_plan(descriptor *d) {
    const void *h;
    const descriptor *config = referred(d, 401);
    read(d, 400, &h);
    if (!object_lives(h) || config->kind != CONFIG)
        return DESCRIPTOR_TYPE;
    d->engines = config->engines;
    return d->engines[0].no_plan ? GRAPH_PATTERN : SUCCESS;
}

int finalize_pack(descriptor *d) {
    const value &names = d->set.at(1000), &pointers = d->set.at(1001);
    if (names.count != pointers.count)
        return BAD_PARAM;
    for (int64_t i = 0; i < names.count; i++)
        d->pointers[((const int64_t *)names.bytes.data())[i]] = ((void *const *)pointers.bytes.data())[i];
    read(d, 1003, &d->workspace);
    return (int64_t)d->pointers.size() == names.count ? SUCCESS : BAD_PARAM;
}

} /* namespace */

int descriptor_finalize(descriptor *d) {
    switch (d->kind) {
    case TENSOR:
        return finalize_tensor(d);
    case CONVOLUTION:
        return finalize_window(d);
    case OP_FORWARD:
    case OP_WEIGHT:
    case OP_DATA:
        return finalize_operation(d);
    case POINTWISE:
    case MATMUL:
    case REDUCTION:
        return finalize_function(d);
    case OP_POINTWISE:
    case OP_MATMUL:
    case OP_REDUCTION:
    case OP_RESHAPE:
        return finalize_step(d);
    case GRAPH:
        return finalize_graph(d);
    case HEURISTICS:
        return finalize_heuristics(d);
    case PLAN:
        return finalize_plan(d);
    case PACK:
        return finalize_pack(d);
    default:
        return DESCRIPTOR_TYPE; /* what the library makes itself */
    }
}

} /* namespace fake_cudnn */
