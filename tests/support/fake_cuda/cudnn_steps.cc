#include "cudnn_steps.h"
#include "cudnn_descriptor.h"

#include <atomic>
#include <cmath>
#include <cstring>

namespace fake_cudnn {

/* ---- what fits ---- */

static bool same_dims(const tensor &a, const tensor &b) { return !memcmp(a.dim, b.dim, sizeof a.dim); }

static bool same_tensor(const tensor &a, const tensor &b) {
    return same_dims(a, b) && !memcmp(a.stride, b.stride, sizeof a.stride) && a.type == b.type &&
           a.alignment == b.alignment && a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

static bool repeats_in(const tensor &a, const tensor &y) {
    for (int i = 0; i < 4; i++)
        if (a.dim[i] != y.dim[i] && a.dim[i] != 1)
            return false;
    return true;
}

static bool is_number(const tensor &t) { return t.type == FLOAT || t.type == HALF || t.type == BFLOAT16; }

static bool pointwise_fits(const step &s) {
    bool two = s.mode == ADD || s.mode == MUL || s.mode == DIV || s.mode == SUB || s.mode == AT_LEAST;
    bool one = s.mode == EXP || s.mode == LOG || s.mode == INDEX, select = s.mode == SELECT;
    if ((!two && !one && !select) || s.has_b == one || s.has_t != select)
        return false;
    if (!same_dims(s.x, s.y) || (s.has_b && !repeats_in(s.b, s.y)) || (select && !repeats_in(s.t, s.y)))
        return false;
    if (s.mode == INDEX)
        return s.axis >= 0 && s.axis < 4 && s.y.type == INT32;
    if (s.mode == AT_LEAST)
        return s.x.type == INT32 && s.b.type == INT32 && s.y.type == BOOLEAN;
    return is_number(s.x) && is_number(s.y) && (!select || s.t.type == BOOLEAN) && (!s.has_b || is_number(s.b));
}

static bool product_fits(const step &s) {
    for (int i = 0; i < 2; i++)
        if (s.x.dim[i] != s.b.dim[i] || s.x.dim[i] != s.y.dim[i])
            return false;
    return s.x.dim[2] == s.y.dim[2] && s.x.dim[3] == s.b.dim[2] && s.b.dim[3] == s.y.dim[3] && is_number(s.x) &&
           is_number(s.b) && is_number(s.y);
}

static int64_t elements_of(const tensor &t) { return t.dim[0] * t.dim[1] * t.dim[2] * t.dim[3]; }

/* From its first element to behind its last one. */
static int64_t extent_of(const tensor &t) {
    int64_t last = 0;
    for (int i = 0; i < 4; i++)
        last += (t.dim[i] - 1) * t.stride[i];
    return last + 1;
}

bool step_fits(const step &s) {
    if (s.y.by_value)
        return false;
    if (s.kind == OP_POINTWISE)
        return pointwise_fits(s);
    if (s.kind == OP_MATMUL)
        return product_fits(s);
    if (s.kind == OP_REDUCTION)
        return repeats_in(s.y, s.x) && (s.mode == REDUCE_ADD || s.mode == REDUCE_MAX) && is_number(s.x);
    return s.y.is_virtual && elements_of(s.x) == elements_of(s.y) && extent_of(s.x) == extent_of(s.y);
}

bool steps_fit(const std::vector<step> &steps) {
    std::map<int64_t, tensor> seen;
    std::map<int64_t, bool> made;
    for (const step &s : steps) {
        const tensor *const all[] = {&s.x, s.has_b ? &s.b : nullptr, s.has_t ? &s.t : nullptr, &s.y};
        for (const tensor *t : all) {
            if (!t)
                continue;
            auto known = seen.insert({t->name, *t}).first;
            if (!same_tensor(known->second, *t) || (t != &s.y && t->is_virtual && !made.count(t->name)))
                return false;
        }
        if (made.count(s.y.name))
            return false;
        made[s.y.name] = true;
    }
    return true;
}

bool steps_suit(const std::vector<step> &steps) {
    for (const step &s : steps)
        for (const tensor *t : {&s.x, &s.b, &s.y})
            for (int i = 0; i < 4 && (t->type == HALF || t->type == BFLOAT16) && !t->is_virtual; i++)
                if (t->alignment < 16 || (t->stride[i] % 8 && t->stride[i] != 1))
                    return false;
    return true;
}

/* ---- running ---- */

namespace {

/* What a graph's tensors hold while it runs. */
struct memory {
    std::map<int64_t, void *> pointers;
    std::map<int64_t, float> values;
    std::map<int64_t, std::vector<double>> virtuals;

    static int64_t place(const tensor &t, const int64_t at[4]) {
        int64_t i = 0;
        for (int d = 0; d < 4; d++)
            i += t.dim[d] == 1 ? 0 : at[d] * t.stride[d];
        return i;
    }

    double read_at(const tensor &t, int64_t i) {
        return t.by_value     ? values.at(t.name)
               : t.is_virtual ? virtuals.at(t.name)[(size_t)i]
                              : element_load(t.type, pointers.at(t.name), i);
    }

    double read(const tensor &t, const int64_t at[4]) { return read_at(t, place(t, at)); }

    void write_at(const tensor &t, int64_t i, double value) {
        if (!t.is_virtual) {
            element_store(t.type, pointers.at(t.name), i, value);
            return;
        }
        bool exact = t.type == INT32 || t.type == BOOLEAN;
        virtuals[t.name].resize((size_t)extent_of(t), NAN);
        virtuals[t.name][(size_t)i] = exact ? value : element_rounded(t.type, value);
    }

    void write(const tensor &t, const int64_t at[4], double value) { write_at(t, place(t, at), value); }
};

template <class Visit> void visit_all(const tensor &t, Visit visit) {
    int64_t at[4];
    for (at[0] = 0; at[0] < t.dim[0]; at[0]++)
        for (at[1] = 0; at[1] < t.dim[1]; at[1]++)
            for (at[2] = 0; at[2] < t.dim[2]; at[2]++)
                for (at[3] = 0; at[3] < t.dim[3]; at[3]++)
                    visit(at);
}

double pointwise_of(const step &s, double x, double b, double t, const int64_t at[4]) {
    switch (s.mode) {
    case ADD:
        return x + b;
    case MUL:
        return x * b;
    case DIV:
        return x / b;
    case SUB:
        return x - b;
    case EXP:
        return exp(x);
    case LOG:
        return log(x);
    case AT_LEAST:
        return x >= b;
    case INDEX:
        return (double)at[s.axis];
    default:
        return t != 0 ? x : b;
    }
}

void run_pointwise(const step &s, memory &m) {
    visit_all(s.y, [&](const int64_t *at) {
        double b = s.has_b ? m.read(s.b, at) : 0, t = s.has_t ? m.read(s.t, at) : 0;
        m.write(s.y, at, pointwise_of(s, m.read(s.x, at), b, t, at));
    });
}

void run_product(const step &s, memory &m) {
    visit_all(s.y, [&](const int64_t *at) {
        float sum = 0;
        for (int64_t k = 0; k < s.x.dim[3]; k++) {
            const int64_t x[4] = {at[0], at[1], at[2], k}, b[4] = {at[0], at[1], k, at[3]};
            sum += (float)(m.read(s.x, x) * m.read(s.b, b));
        }
        m.write(s.y, at, sum);
    });
}

void run_reduction(const step &s, memory &m) {
    std::map<int64_t, double> results;
    visit_all(s.x, [&](const int64_t *at) {
        double x = m.read(s.x, at);
        auto known = results.insert({memory::place(s.y, at), x});
        double &result = known.first->second;
        if (!known.second)
            result = s.mode == REDUCE_ADD ? (float)(result + x) : fmax(result, x);
    });
    for (const auto &r : results)
        m.write_at(s.y, r.first, r.second);
}

/* Memory, as it lies, seen with another shape. */
void run_view(const step &s, memory &m) {
    visit_all(s.y, [&](const int64_t *at) {
        int64_t i = memory::place(s.y, at);
        m.write_at(s.y, i, m.read_at(s.x, i));
    });
}

void run_steps(const engine &e, memory m, void *workspace) {
    static std::atomic<int> calls{0};
    if (e.workspace)
        memset(workspace, 0xff, (size_t)e.workspace);
    for (const step &s : e.steps) {
        if (s.kind == OP_POINTWISE)
            run_pointwise(s, m);
        else if (s.kind == OP_MATMUL)
            run_product(s, m);
        else if (s.kind == OP_REDUCTION)
            run_reduction(s, m);
        else
            run_view(s, m);
        if (e.numbers == NOISY && !s.y.is_virtual)
            visit_all(s.y, [&](const int64_t *at) { m.write(s.y, at, m.read(s.y, at) + (++calls % 7 + 1) / 16.0); });
    }
}

} /* namespace */

int steps_enqueue(const engine &e, const std::map<int64_t, void *> &pointers, void *workspace, cudaStream_t stream) {
    memory m;
    for (const step &s : e.steps)
        for (const tensor *t : {&s.x, s.has_b ? &s.b : &s.x, s.has_t ? &s.t : &s.x, &s.y}) {
            if (t->is_virtual)
                continue;
            auto p = pointers.find(t->name);
            if (p == pointers.end() || !p->second)
                return NULL_POINTER;
            if (!t->by_value && (uintptr_t)p->second % (uintptr_t)t->alignment)
                return MISALIGNED;
            if (t->by_value)
                m.values[t->name] = *(const float *)p->second;
            else
                m.pointers[t->name] = p->second;
        }
    cudaError_t error = fake_launch(1, 1, false, stream, [=] { run_steps(e, m, workspace); });
    return error ? EXECUTION_FAILED : SUCCESS;
}

} /* namespace fake_cudnn */
