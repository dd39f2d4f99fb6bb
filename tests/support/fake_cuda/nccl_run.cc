/* What operations do when their stream comes to them: messages through mailboxes, and sums. */
#include "nccl_comm.h"

#include "base/dtype.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <list>

size_t fake_nccl_size(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

/* ---- messages */

struct message {
    int peer;
    char *at;
    size_t bytes;
    std::string signature;
    size_t moved;
    bool begun, done;
};

/* All of a group's messages with a rank, in order. */
using messages = std::list<message>;

static bool put_piece(fake_mailbox &box, message &m) {
    if (box.full)
        return false;
    box.bytes = m.bytes - m.moved < FAKE_PIECE ? m.bytes - m.moved : (size_t)FAKE_PIECE;
    box.total = m.bytes;
    snprintf(box.signature, sizeof box.signature, "%s", m.signature.c_str());
    if (box.bytes)
        memcpy(box.data, m.at + m.moved, box.bytes);
    m.moved += box.bytes;
    box.full = true;
    return m.done = m.moved == m.bytes;
}

static bool take_piece(fake_mailbox &box, message &m) {
    if (!box.full || box.total != m.bytes || m.signature != box.signature)
        return false;
    if (box.bytes)
        memcpy(m.at + m.moved, box.data, box.bytes);
    m.moved += box.bytes;
    box.full = false;
    return m.done = m.moved == m.bytes;
}

/* Move one piece of the first message with each rank. */
static void move(fake_core &core, messages &list, bool sends) {
    bool busy[FAKE_RANKS] = {};
    for (auto m = list.begin(); m != list.end();) {
        bool first = !busy[m->peer];
        busy[m->peer] = true;
        bool over = first && (sends ? put_piece(core.area->boxes[core.rank][m->peer], *m)
                                    : take_piece(core.area->boxes[m->peer][core.rank], *m));
        m = over ? list.erase(m) : std::next(m);
    }
}

/* A send is over when its receiver has taken it. */
static bool are_taken(const fake_core &core, const bool sent[FAKE_RANKS]) {
    for (int r = 0; r < core.size; r++)
        if (sent[r] && core.area->boxes[core.rank][r].full)
            return false;
    return true;
}

static void exchange(fake_core &core, messages sends, messages receives) {
    bool sent[FAKE_RANKS] = {};
    for (const message &m : sends)
        sent[m.peer] = true;
    while (!core.aborted && (!sends.empty() || !receives.empty() || !are_taken(core, sent))) {
        move(core, sends, true);
        move(core, receives, false);
        usleep(20);
    }
}

/* ---- sums */

double fake_nccl_factor(const void *scalar, ncclDataType_t type) {
    uint16_t half;
    float f32;
    double f64;
    memcpy(&half, scalar, 2);
    memcpy(&f32, scalar, type == ncclFloat32 ? 4 : 0);
    memcpy(&f64, scalar, type == ncclFloat64 ? 8 : 0);
    return type == ncclFloat16    ? (double)tt__float_of_f16(half)
           : type == ncclBfloat16 ? (double)tt__float_of_bf16(half)
           : type == ncclFloat32  ? (double)f32
                                  : f64;
}

/* Integers wrap around. */
static int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
template <typename Sum> static Sum plus(Sum a, Sum b) { return a + b; }
template <typename Sum> static Sum times(Sum a, Sum b) { return a * b; }

template <typename T, typename Sum> static Sum combine(Sum a, Sum b, int op) {
    return op == ncclProd  ? (Sum)(T)times(a, b)
           : op == ncclMin ? (b < a ? b : a)
           : op == ncclMax ? (b > a ? b : a)
                           : (Sum)(T)plus(a, b);
}

struct f16 {
    uint16_t bits;
    f16(float x) : bits(tt__f16_of_float(x)) {}
    operator float() const { return tt__float_of_f16(bits); }
};
struct bf16 {
    uint16_t bits;
    bf16(float x) : bits(tt__bf16_of_float(x)) {}
    operator float() const { return tt__float_of_bf16(bits); }
};

/* inputs: one of each rank. PREMUL's were multiplied by their ranks. */
template <typename T, typename Sum>
static void reduce(char *out, const std::vector<std::vector<char>> &inputs, size_t count, int op) {
    for (size_t i = 0; i < count; i++) {
        Sum all = (Sum) reinterpret_cast<const T *>(inputs[0].data())[i];
        for (size_t r = 1; r < inputs.size(); r++)
            all = combine<T, Sum>(all, (Sum) reinterpret_cast<const T *>(inputs[r].data())[i], op);
        if (op == ncclAvg)
            all = all / (Sum)inputs.size();
        T result = (T)all;
        memcpy(out + i * sizeof(T), &result, sizeof result);
    }
}

template <typename T> static void multiply(std::vector<char> &bytes, double factor) {
    for (size_t i = 0; i < bytes.size() / sizeof(T); i++) {
        T *x = reinterpret_cast<T *>(bytes.data()) + i;
        *x = (T)((double)*x * factor);
    }
}

static void multiply_by(std::vector<char> &bytes, ncclDataType_t type, double factor) {
    if (type == ncclFloat64)
        return multiply<double>(bytes, factor);
    if (type == ncclFloat32)
        return multiply<float>(bytes, factor);
    for (size_t i = 0; i < bytes.size() / 2; i++) {
        uint16_t *x = reinterpret_cast<uint16_t *>(bytes.data()) + i;
        if (type == ncclFloat16)
            *x = tt__f16_of_float(tt__float_of_f16(*x) * (float)factor);
        else
            *x = tt__bf16_of_float(tt__float_of_bf16(*x) * (float)factor);
    }
}

static void reduce_by_type(char *out, const std::vector<std::vector<char>> &inputs, const fake_operation &o) {
    switch (o.type) {
    case ncclInt8:
        return reduce<int8_t, int>(out, inputs, o.count, o.op);
    case ncclUint8:
        return reduce<uint8_t, int>(out, inputs, o.count, o.op);
    case ncclInt32:
        return reduce<int32_t, int64_t>(out, inputs, o.count, o.op);
    case ncclInt64:
        return reduce<int64_t, int64_t>(out, inputs, o.count, o.op);
    case ncclFloat64:
        return reduce<double, double>(out, inputs, o.count, o.op);
    case ncclFloat32:
        return reduce<float, float>(out, inputs, o.count, o.op);
    case ncclFloat16:
        return reduce<f16, float>(out, inputs, o.count, o.op);
    default:
        return reduce<bf16, float>(out, inputs, o.count, o.op);
    }
}

/* ---- collectives */

static std::string signature_of(const fake_operation &o) {
    int op = o.op >= 5 ? 5 : o.op;
    return o.name + " " + std::to_string(o.count) + " " + std::to_string(o.type) + " " + std::to_string(op) + " " +
           std::to_string(o.peer);
}

static message make_message(int peer, const void *at, size_t bytes, const std::string &signature) {
    return {peer, (char *)at, bytes, signature, 0, false, false};
}

/* Each rank's input of a reduction comes to those that have a part of the result. */
static void run_reduction(fake_core &core, const fake_operation &o) {
    bool scatter = o.name == "ReduceScatter", has_result = o.name != "Reduce" || o.peer == core.rank;
    size_t part = o.count * fake_nccl_size(o.type), all = part * (size_t)(scatter ? core.size : 1);
    std::vector<char> mine((const char *)o.send, (const char *)o.send + all);
    std::vector<std::vector<char>> inputs((size_t)core.size, std::vector<char>(part));
    messages sends, receives;
    if (o.op >= 5)
        multiply_by(mine, o.type, o.factor);
    for (int r = 0; r < core.size; r++) {
        if (o.name != "Reduce" || r == o.peer)
            sends.push_back(make_message(r, mine.data() + (scatter ? (size_t)r * part : 0), part, signature_of(o)));
        if (has_result)
            receives.push_back(make_message(r, inputs[(size_t)r].data(), part, signature_of(o)));
    }
    exchange(core, sends, receives);
    if (has_result && !core.aborted)
        reduce_by_type((char *)o.recv, inputs, o);
}

static void run_copies(fake_core &core, const fake_operation &o) {
    size_t part = o.count * fake_nccl_size(o.type);
    bool gathers = o.name == "AllGather";
    std::vector<char> mine;
    messages sends, receives;
    if (gathers || o.peer == core.rank)
        mine.assign((const char *)o.send, (const char *)o.send + part);
    for (int r = 0; r < core.size; r++) {
        if (gathers || o.peer == core.rank)
            sends.push_back(make_message(r, mine.data(), part, signature_of(o)));
        if (gathers || o.peer == r)
            receives.push_back(
                make_message(r, (char *)o.recv + (gathers ? (size_t)r * part : 0), part, signature_of(o)));
    }
    exchange(core, sends, receives);
}

static void run_messages(fake_core &core, const std::vector<fake_operation> &group) {
    messages sends, receives;
    for (const fake_operation &o : group) {
        size_t bytes = o.count * fake_nccl_size(o.type);
        (o.name == "Send" ? sends : receives)
            .push_back(make_message(o.peer, o.name == "Send" ? o.send : o.recv, bytes, "message"));
    }
    exchange(core, sends, receives);
}

void fake_nccl_run(fake_core &core, const std::vector<fake_operation> &group) {
    const fake_operation &first = group[0];
    for (const fake_operation &o : group)
        while (o.hangs && !core.aborted)
            usleep(1000);
    if (first.name == "Send" || first.name == "Recv")
        run_messages(core, group);
    else if (first.name == "Broadcast" || first.name == "AllGather")
        run_copies(core, first);
    else
        run_reduction(core, first);
}
