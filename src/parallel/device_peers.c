/* Mapping the other ranks' device memory, and sums in it: see device_peers.h. */
#include "parallel/device_peers.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/native/peer_memory.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "tensor/device/capture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARE_ALIGNMENT = 256 /* bytes: shares begin at whole lines of the device's memory */ };

struct tt__device_peers {
    tt_group *group;
    const tt_device *device;
    void *ranges[TT__DEVICE_PEERS]; /* of the others, by rank */
    uint64_t *given;                /* serials of this rank's pieces that the others have */
    size_t given_count;
    /* a rank once failed to reach some memory, so what the others have is unknown. The same on all ranks */
    bool broken;
};

/* What a rank tells of a piece that it hands over, or of the place of its memory. */
typedef struct peer_word {
    tt__device_piece piece;
    uint64_t more; /* pieces that follow */
} peer_word;

static bool may_reach(const tt_group *group, const tt_device *device) {
    const char *wish = secure_getenv("TT_CUDA_P2P");
    return tt__group_can_trade(group) && tt_get_world_size(group) <= TT__DEVICE_PEERS && device->sharing &&
           device->queue && !(wish && !strcmp(wish, "0"));
}

/* Whether `mine` holds on all ranks. */
static tt_status holds_everywhere(tt_group *group, bool mine, const char *who, bool *all) {
    uint8_t own = mine, each[TT__TRADE_RANKS];
    TT__TRY(tt__group_gather(group, &own, each, 1, TT_U8, who));
    *all = true;
    for (int r = 0; r < tt_get_world_size(group); r++)
        *all &= each[r] != 0;
    return TT_OK;
}

tt_status tt__device_peers_make(tt__device_peers **out, tt_group *group, const tt_device *device, const char *who) {
    bool all = false;
    *out = NULL;
    if (!tt__group_can_trade(group)) /* the same on all ranks */
        return TT_OK;
    tt__device_peers *peers = may_reach(group, device) ? calloc(1, sizeof *peers) : NULL;
    tt_status status = holds_everywhere(group, peers != NULL, who, &all);
    if (status || !all) {
        free(peers);
        return status;
    }
    peers->group = group;
    peers->device = device;
    *out = peers;
    return TT_OK;
}

void tt__device_peers_free(tt__device_peers *peers) {
    if (!peers)
        return;
    for (int r = 0; r < TT__DEVICE_PEERS; r++)
        peers->device->sharing->range_free(peers->device, peers->ranges[r]);
    free(peers->given);
    free(peers);
}

/* ---- pieces ---- */

static bool was_given(const tt__device_peers *p, uint64_t serial) {
    for (size_t i = 0; i < p->given_count; i++)
        if (p->given[i] == serial)
            return true;
    return false;
}

static bool note_given(tt__device_peers *p, uint64_t serial) {
    uint64_t *list = realloc(p->given, (p->given_count + 1) * sizeof *list);
    if (!list)
        return false;
    p->given = list;
    p->given[p->given_count++] = serial;
    return true;
}

/* Find this rank's next piece to hand over: own->piece and its descriptor *fd. *fd = -1, and no bytes: the others have
 * all. */
static tt_status next_piece(const tt__device_peers *p, char **at, const char *end, peer_word *own, int *fd) {
    *own = (peer_word){.more = 0};
    *fd = -1;
    while (*at < end) {
        tt__device_piece piece;
        TT__TRY(p->device->sharing->piece(p->device, *at, &piece));
        const char *memory = *at;
        *at += piece.bytes - piece.at;
        if (was_given(p, piece.serial))
            continue;
        own->piece = piece;
        own->more = 1;
        return p->device->sharing->give(p->device, memory, fd);
    }
    return TT_OK;
}

static tt_status take_peers_piece(tt__device_peers *p, int r, const peer_word *word, int fd) {
    const tt__device_sharing *s = p->device->sharing;
    if (!p->ranges[r])
        TT__TRY(s->range_new(p->device, word->piece.range, &p->ranges[r]));
    return word->piece.bytes ? s->range_take(p->device, p->ranges[r], &word->piece, fd) : TT_OK;
}

/* Map the pieces that the others gave in this round, and close their descriptors. */
static tt_status take_pieces(tt__device_peers *p, const peer_word *words, const int *fds) {
    tt_status status = TT_OK;
    for (int r = 0; r < tt_get_world_size(p->group); r++) {
        if (fds[r] < 0)
            continue;
        if (!status)
            status = take_peers_piece(p, r, &words[r], fds[r]);
        close(fds[r]);
    }
    return status;
}

static void log_unreached(const char *who) {
    tt__log(TT_LOG_INFO, "%s: the ranks can't reach each other's memory on devices: %s", who, tt_last_error());
}

/* Hand over one piece each. *more: some rank had one to give. *fine: this rank could do its part so far. */
static tt_status trade_round(tt__device_peers *p, char **at, const char *end, const char *who, bool *fine, bool *more) {
    peer_word own = {.more = 0}, words[TT__DEVICE_PEERS];
    int fd = -1, fds[TT__DEVICE_PEERS];
    if (*fine && next_piece(p, at, end, &own, &fd)) {
        log_unreached(who);
        *fine = false;
        own.more = 0;
    }
    tt_status status = tt__group_gather(p->group, &own, words, sizeof own, TT_U8, who);
    *more = false;
    for (int r = 0; r < tt_get_world_size(p->group) && !status; r++)
        *more |= words[r].more != 0;
    if (!status && *more)
        status = tt__group_trade(p->group, fd, fds, who);
    if (fd >= 0)
        close(fd);
    if (status == TT_ERR_UNSUPPORTED) {
        log_unreached(who);
        *fine = *more = false;
        return TT_OK;
    }
    if (status || !*more)
        return status;
    if (take_pieces(p, words, fds) || (own.more && *fine && !note_given(p, own.piece.serial))) {
        log_unreached(who);
        *fine = false;
    }
    return TT_OK;
}

tt_status tt__device_peers_reach(tt__device_peers *p, void *memory, size_t bytes, const char *who, void **of,
                                 bool *reached) {
    char *at = memory;
    bool fine = true, more = true;
    peer_word own = {.more = 0}, words[TT__DEVICE_PEERS];
    *reached = false;
    if (p->broken)
        return TT_OK;
    while (more)
        TT__TRY(trade_round(p, &at, (char *)memory + bytes, who, &fine, &more));
    if (fine && p->device->sharing->piece(p->device, memory, &own.piece)) {
        log_unreached(who);
        fine = false;
    }
    own.more = fine;
    TT__TRY(tt__group_gather(p->group, &own, words, sizeof own, TT_U8, who));
    *reached = true;
    for (int r = 0; r < tt_get_world_size(p->group); r++) {
        *reached &= words[r].more == 1 && (r == tt_get_rank(p->group) || p->ranges[r]);
        of[r] = r == tt_get_rank(p->group) ? memory
                : *reached ? p->device->sharing->range_at(p->ranges[r], words[r].piece.offset + words[r].piece.at)
                           : NULL;
    }
    p->broken = !*reached;
    return TT_OK;
}

/* ---- sums ---- */

tt_status tt__device_peers_sum(const tt__device_peers *p, void *const *of, size_t count, tt_dtype dtype, bool average,
                               void **mark) {
    const size_t n = (size_t)tt_get_world_size(p->group), line = SHARE_ALIGNMENT / tt_dtype_size(dtype);
    const size_t share = (count / n / line + 1) * line, first = share * (size_t)tt_get_rank(p->group);
    tt__device_sum sum = {.n = (int)n, .dtype = dtype, .average = average};
    sum.first = first < count ? first : count;
    sum.count = count - sum.first < share ? count - sum.first : share;
    memcpy(sum.of, of, n * sizeof *of);
    return p->device->sharing->sum(p->device, &sum, mark);
}

enum { LEAST_BYTES = 64 << 10 }; /* fewer bytes are as fast over the host, in one call */

/* ---- all_reduce of tensors where they lie: the ranks compare what they call, tell each other where their tensors lie,
 * sum each its share into all of them, and wait for each other ---- */

/* What must be alike on all ranks. */
typedef struct reduce_word {
    int64_t count;
    int32_t dtype, op;
} reduce_word;

/* Memory that was lent and not given back. */
typedef struct lent {
    struct lent *next;
    tt__storage *storage;
} lent;

bool tt__device_all_reduce_fits(const tt_tensor_all_reduce_args *a) {
    const tt_device *device = tt_tensor_device(a->x);
    const tt_dtype dtype = tt_tensor_dtype(a->x);
    return a->group && a->group->device == TT_DEVICE_CUDA && a->group->native && device->sharing && device->queue &&
           !a->work && (a->op == TT_SUM || a->op == TT_AVG) &&
           (dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16) && tt_is_contiguous(a->x) &&
           tt_tensor_numel(a->x) * (int64_t)tt_dtype_size(dtype) >= LEAST_BYTES;
}

/* What is attached to a group whose ranks can't reach each other. */
static char none;

static void end_attached(void *attached) {
    if (attached != &none)
        tt__device_peers_free(attached);
}

/* The group's peers, made by its first call. NULL: there are none. */
static tt_status find_peers(tt_group *group, const tt_device *device, const char *who, tt__device_peers **peers) {
    void *attached = tt__group_attached(group);
    if (!attached) {
        TT__TRY(tt__device_peers_make(peers, group, device, who));
        attached = *peers ? (void *)*peers : &none;
        tt__group_attach(group, attached, end_attached);
    }
    *peers = attached == &none ? NULL : attached;
    return TT_OK;
}

static const char *op_name(int op) { return op == TT_AVG ? "avg" : "sum"; }

static tt_status compare_calls(const tt_tensor_all_reduce_args *a, const char *who) {
    const reduce_word own = {tt_tensor_numel(a->x), (int32_t)tt_tensor_dtype(a->x), (int32_t)a->op};
    reduce_word all[TT__DEVICE_PEERS];
    TT__TRY(tt__group_gather(a->group, &own, all, sizeof own, TT_U8, who));
    for (int r = 0; r < tt_get_world_size(a->group); r++)
        if (all[r].count != own.count || all[r].dtype != own.dtype || all[r].op != own.op) {
            tt__fail(TT_ERR_MISMATCH, "rank %d called all_reduce(%s x %lld, %s), and rank %d all_reduce(%s x %lld, %s)",
                     r, tt_dtype_name((tt_dtype)all[r].dtype), (long long)all[r].count, op_name(all[r].op),
                     tt_get_rank(a->group), tt_dtype_name((tt_dtype)own.dtype), (long long)own.count, op_name(own.op));
            tt__abort_with_error(a->group);
            return tt_last_status();
        }
    return TT_OK;
}

static tt_status wait_for_mark(const tt_device *device, void *mark) {
    bool done;
    return mark ? device->queue->sent(device, mark, true, &done) : TT_OK;
}

/* Leak memory to which other ranks of a failed call may still write. */
static void lend_for_ever(tt__storage *storage) {
    static _Atomic(lent *) all;
    lent *l = malloc(sizeof *l);
    tt__storage_ref(storage);
    if (!l)
        return;
    *l = (lent){atomic_load(&all), storage};
    while (!atomic_compare_exchange_weak(&all, &l->next, l))
        ;
}

/* Sum this rank's share, then wait for all ranks. */
static tt_status sum_and_meet(const tt_tensor_all_reduce_args *a, const tt__device_peers *peers, void *const *of,
                              const char *who) {
    const tt_device *device = tt_tensor_device(a->x);
    void *mark = NULL;
    tt_status status =
        tt__device_peers_sum(peers, of, (size_t)tt_tensor_numel(a->x), tt_tensor_dtype(a->x), a->op == TT_AVG, &mark);
    if (!status)
        status = wait_for_mark(device, mark);
    if (status) /* of this rank alone */
        tt__abort_with_error(a->group);
    else
        status = tt_barrier_with(TT_ARGS(tt_barrier_args, a->group, .timeout_ms = a->timeout_ms, .file = who));
    if (status)
        lend_for_ever(a->x->storage);
    else
        tt__storage_touch(a->x->storage);
    return status;
}

tt_status tt__device_all_reduce(const tt_tensor_all_reduce_args *a, const char *who, bool *done) {
    const tt_device *device = tt_tensor_device(a->x);
    const size_t bytes = (size_t)tt_tensor_numel(a->x) * tt_dtype_size(tt_tensor_dtype(a->x));
    void *of[TT__DEVICE_PEERS], *mark = NULL;
    tt__device_peers *peers;
    bool reached = false;
    *done = false;
    TT__TRY(tt__capture_refuse(who, NULL));
    TT__TRY(find_peers(a->group, device, who, &peers));
    if (!peers)
        return TT_OK;
    tt_status status = device->queue->mark(device, &mark);
    if (!status)
        status = wait_for_mark(device, mark);
    if (status) { /* of this rank alone */
        tt__abort_with_error(a->group);
        return status;
    }
    TT__TRY(compare_calls(a, who));
    TT__TRY(tt__device_peers_reach(peers, a->x->data, bytes, who, of, &reached));
    if (!reached)
        return TT_OK;
    *done = true;
    return sum_and_meet(a, peers, of, who);
}
