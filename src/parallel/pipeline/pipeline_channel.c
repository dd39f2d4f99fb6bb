/* How activations and their gradients go from stage to stage: in order, each under a header that says what it is.
 *
 * On one host a tensor is copied into a slot of the sender's symmetric memory, and the header, a small message, says
 * which; the receiver copies it out. So neither waits for the other while it computes. Where there are no slots (yet),
 * none is free, or the peer is on another host, the tensor follows its header as a message of its own. A rank that
 * fails says so in its neighbours' next headers. */
#include "parallel/pipeline/pipeline_own.h"

#include "base/error.h"
#include "comm/group.h"
#include "comm/native/peer_memory.h"
#include "reducer/text_agreement.h"
#include "tensor/shape/memory_format.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What errors of calls inside a step name instead of a file. */
static const char call_site[] = "a pipeline's step";

/* FIRST_TAG: far from a program's own tags, and below the largest tag of MPI libraries. */
enum { FIRST_TAG = 0x07000000, COUNT_BYTES = 64, PAGE_BYTES = 4096 };

/* Values of channel_header.what. */
enum { COMES_IN_SLOT, COMES_AS_MESSAGE, HAS_FAILED };

typedef struct channel_header {
    int32_t what;
    int32_t dtype;
    int64_t micro, slot;
    int32_t channels_last, ndim;
    int64_t dim[TT_MAX_DIMS];
    int32_t failed_rank;
    char failure[sizeof((tt__channels *)0)->failure];
} channel_header;

/* Both ends of a channel: the stages, their chunks and their ranks. */
typedef struct channel_ends {
    int64_t from_stage, to_stage, from_chunk, to_chunk;
    int from_rank, to_rank, tag;
} channel_ends;

/* The channel that leaves stage `from`. */
static channel_ends ends_of(const tt__channels *c, int64_t from, tt__way way) {
    int64_t to = way == TT__ONWARD ? from + 1 : from - 1;
    return (channel_ends){.from_stage = from,
                          .to_stage = to,
                          .from_chunk = from / c->ranks,
                          .to_chunk = to / c->ranks,
                          .from_rank = (int)(from % c->ranks),
                          .to_rank = (int)(to % c->ranks),
                          .tag = FIRST_TAG + (int)(from * 4 + way * 2)};
}

static channel_ends outgoing_ends(const tt__channels *c, int64_t chunk, tt__way way) {
    return ends_of(c, chunk * c->ranks + c->rank, way);
}

static channel_ends incoming_ends(const tt__channels *c, int64_t chunk, tt__way way) {
    int64_t to = chunk * c->ranks + c->rank;
    return ends_of(c, way == TT__ONWARD ? to - 1 : to + 1, way);
}

static const char *what_goes(tt__way way) { return way == TT__ONWARD ? "activations" : "gradient"; }

static bool stage_exists(const tt__channels *c, int64_t stage) { return stage >= 0 && stage < c->ranks * c->chunks; }

/* ---- memory ---- */

static size_t counts_bytes(const tt__channels *c) {
    size_t bytes = (size_t)c->chunks * 2 * COUNT_BYTES;
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The count, in a rank's memory, of tensors that it has taken out of the slots of the channel into its chunk. */
static _Atomic uint64_t *taken_count(const void *memory, int64_t chunk, tt__way way) {
    return (_Atomic uint64_t *)((uintptr_t)memory + (size_t)(chunk * 2 + way) * COUNT_BYTES);
}

/* The largest number of channels with slots that leave a rank. The first stage sends nothing back, the last nothing on;
 * with three ranks or more, a rank between has all. */
static int64_t slot_channels(const tt__channels *c) { return c->chunks * 2 - (c->ranks == 2); }

/* A slot in the memory of rank `owner`, which sends from it. */
static unsigned char *slot_at(const tt__channels *c, int owner, const void *memory, int64_t chunk, tt__way way,
                              int64_t slot) {
    int64_t channel = chunk * 2 + way, left_out = owner == 0 ? TT__BACK : (c->chunks - 1) * 2 + TT__ONWARD;
    if ((owner == 0 || owner == c->ranks - 1) && channel > left_out)
        channel--;
    size_t number = (size_t)channel * (size_t)c->slots + (size_t)slot;
    return (unsigned char *)((uintptr_t)memory + counts_bytes(c) + number * c->slot_bytes);
}

static const void *memory_of(const tt__channels *c, int rank) {
    return c->slot_bytes ? tt__peer_memory(c->group, rank, c->offsets[rank]) : NULL;
}

tt_status tt__channels_init(tt__channels *c, tt_group *group, int64_t chunks) {
    *c = (tt__channels){
        .rank = tt_get_rank(group), .ranks = tt_get_world_size(group), .chunks = chunks, .failed_rank = -1};
    c->group = group;
    tt__group_hold(group);
    c->offsets = calloc((size_t)c->ranks, sizeof *c->offsets);
    c->sent = calloc((size_t)chunks * 2, sizeof *c->sent);
    c->handed = calloc((size_t)chunks * 2, sizeof *c->handed);
    return c->offsets && c->sent && c->handed ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a pipeline's channels");
}

void tt__channels_set_slots(tt__channels *c, int64_t slots) { c->slots = slots; }

size_t tt__channels_want(const tt__channels *c) {
    for (int64_t chunk = 0; chunk < c->chunks; chunk++)
        for (int way = TT__ONWARD; way <= TT__BACK; way++) {
            channel_ends ends = outgoing_ends(c, chunk, (tt__way)way);
            if (stage_exists(c, ends.to_stage) && ends.to_rank != c->rank && tt__peer_memory(c->group, ends.to_rank, 0))
                return c->wanted_bytes;
        }
    return 0;
}

static tt_status free_channel_slots(tt__channels *c, const char *site) {
    void *memory = c->memory;
    c->memory = NULL;
    c->slot_bytes = 0;
    return tt_group_free_with(TT_ARGS(tt_group_free_args, .group = c->group, .ptr = memory, .file = site));
}

tt_status tt__channels_grow(tt__channels *c, size_t bytes) {
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (bytes <= c->slot_bytes || c->ranks == 1 || c->no_room)
        return TT_OK;
    if (c->memory)
        TT__TRY(free_channel_slots(c, call_site));
    void *memory = NULL;
    tt__saved_error before;
    tt__error_save(&before);
    tt_status status = tt_group_alloc_with(
        TT_ARGS(tt_group_alloc_args, .out = &memory, .group = c->group,
                .bytes = counts_bytes(c) + (size_t)slot_channels(c) * (size_t)c->slots * bytes, .file = call_site));
    if (status == TT_ERR_MEMORY) { /* on all ranks */
        c->no_room = true;
        tt__error_restore(&before);
        return TT_OK;
    }
    if (status)
        return status;
    tt__error_restore(&before);
    int64_t offset = tt__symmetric_offset(c->group, memory);
    c->memory = memory;
    memset(c->sent, 0, (size_t)c->chunks * 2 * sizeof *c->sent);
    TT__TRY(
        tt_all_gather_with(TT_ARGS(tt_all_gather_args, c->group, &offset, c->offsets, 1, TT_I64, .file = call_site)));
    c->slot_bytes = bytes;
    return TT_OK;
}

static void sendings_end(tt__channels *c) {
    while (c->sendings) {
        tt__sending *s = c->sendings;
        c->sendings = s->next;
        tt_ignore(tt_work_wait(s->work)); /* the buffer must stay until then; at most the deadline */
        tt_work_free(s->work);
        tt_tensor_free(s->tensor);
        free(s);
    }
}

void tt__channels_end(tt__channels *c) {
    if (!c->group)
        return;
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    sendings_end(c);
    for (int64_t i = 0; c->handed && i < c->chunks * 2; i++)
        while (c->handed[i]) {
            tt__handed *h = c->handed[i];
            c->handed[i] = h->next;
            tt_tensor_free(h->tensor);
            free(h);
        }
    if (c->memory && c->failed_rank < 0) /* after a failure ranks may be in different calls: the group's end frees it */
        tt_ignore(free_channel_slots(c, "tt_pipeline_free"));
    free(c->offsets);
    free(c->sent);
    free(c->handed);
    tt__group_let_go(c->group);
    c->group = NULL;
    tt__error_restore_reason(&saved);
}

/* ---- sending ---- */

static tt_status send_channel_header(tt__channels *c, const channel_ends *ends, const channel_header *header) {
    return tt_send_with(TT_ARGS(tt_send_args, c->group, header, (int64_t)sizeof *header, TT_U8, ends->to_rank,
                                .tag = ends->tag, .file = call_site));
}

/* A free slot of the channel; -1: none, or the tensor is too large. */
static int64_t free_channel_slot(const tt__channels *c, const channel_ends *ends, tt__way way, size_t bytes) {
    const void *theirs = memory_of(c, ends->to_rank);
    if (!theirs || bytes > c->slot_bytes || tt__symmetric_offset(c->group, c->memory) < 0)
        return -1;
    uint64_t taken = atomic_load_explicit(taken_count(theirs, ends->to_chunk, way), memory_order_acquire);
    uint64_t sent = c->sent[ends->from_chunk * 2 + way];
    return sent - taken < (uint64_t)c->slots ? (int64_t)(sent % (uint64_t)c->slots) : -1;
}

/* Drop the tensors whose messages have been sent. */
static void drop_sent_tensors(tt__channels *c) {
    for (tt__sending **at = &c->sendings; *at;) {
        tt__sending *s = *at;
        if (!tt_work_is_completed(s->work) || tt_work_wait(s->work)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        tt_work_free(s->work);
        tt_tensor_free(s->tensor);
        free(s);
    }
}

static tt_status send_tensor_message(tt__channels *c, const channel_ends *ends, tt_tensor *x) {
    tt__sending *s = calloc(1, sizeof *s);
    tt_tensor *copy = s ? tt_keep(tt_clone(x)) : NULL;
    if (!copy) {
        free(s);
        return s ? tt_last_status() : tt__fail(TT_ERR_MEMORY, "no memory to send a tensor");
    }
    *s = (tt__sending){.next = c->sendings, .tensor = copy};
    tt_status status =
        tt_send_with(TT_ARGS(tt_send_args, c->group, tt_tensor_data(copy), tt_tensor_numel(copy), tt_tensor_dtype(copy),
                             ends->to_rank, .tag = ends->tag + 1, .work = &s->work, .file = call_site));
    if (status) {
        tt_tensor_free(copy);
        free(s);
        return status;
    }
    c->sendings = s;
    return TT_OK;
}

/* Hand x to another stage of this rank. */
static tt_status hand_to_own_stage(tt__channels *c, const channel_ends *ends, tt__way way, tt_tensor *x) {
    tt__handed *h = calloc(1, sizeof *h), **end = &c->handed[ends->from_chunk * 2 + way];
    if (!h)
        return tt__fail(TT_ERR_MEMORY, "no memory to hand over a tensor");
    h->tensor = tt_keep(tt_clone(x));
    if (!h->tensor) {
        free(h);
        return tt_last_status();
    }
    while (*end)
        end = &(*end)->next;
    *end = h;
    return TT_OK;
}

static tt_status send_contiguous(tt__channels *c, const channel_ends *ends, tt__way way, channel_header *header,
                                 tt_tensor *x) {
    size_t bytes = (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
    tt_shape shape = tt_tensor_shape(x);
    header->dtype = (int32_t)tt_tensor_dtype(x);
    header->ndim = shape.ndim;
    memcpy(header->dim, shape.dim, sizeof header->dim);
    header->slot = free_channel_slot(c, ends, way, bytes);
    header->what = header->slot < 0 ? COMES_AS_MESSAGE : COMES_IN_SLOT;
    c->wanted_bytes = bytes > c->wanted_bytes ? bytes : c->wanted_bytes;
    if (header->slot >= 0) {
        memcpy(slot_at(c, c->rank, c->memory, ends->from_chunk, way, header->slot), tt_tensor_data(x), bytes);
        c->sent[ends->from_chunk * 2 + way]++;
    }
    TT__TRY(send_channel_header(c, ends, header));
    return header->slot < 0 ? send_tensor_message(c, ends, x) : TT_OK;
}

tt_status tt__channel_send(tt__channels *c, int64_t chunk, tt__way way, int64_t m, tt_tensor *x) {
    channel_ends ends = outgoing_ends(c, chunk, way);
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    if (ends.to_rank == c->rank)
        return hand_to_own_stage(c, &ends, way, x);
    drop_sent_tensors(c);
    channel_header header = {.micro = m, .channels_last = tt_tensor_dim(x) == 4 && tt__is_channels_last(x)};
    tt_tensor *whole = tt_contiguous(tt_to_device(x, tt_device_get("cpu")));
    tt_status status = whole ? send_contiguous(c, &ends, way, &header, whole) : tt_last_status();
    return status ? tt__fail_prefix("rank %d sent the %s of micro-batch %" PRId64 " to stage %" PRId64 " (rank %d)",
                                    c->rank, what_goes(way), m, ends.to_stage, ends.to_rank)
                  : TT_OK;
}

tt_status tt__channels_flush(tt__channels *c) {
    tt_status status = TT_OK;
    for (const tt__sending *s = c->sendings; s && !status; s = s->next)
        status = tt_work_wait(s->work);
    if (!status)
        drop_sent_tensors(c);
    return status ? tt__fail_prefix("rank %d waited until its tensors were taken", c->rank) : TT_OK;
}

void tt__channels_mark_failed(tt__channels *c) {
    tt__saved_error saved;
    if (c->failed_rank >= 0)
        return;
    tt__error_save(&saved);
    snprintf(c->failure, sizeof c->failure, "%s: %.*s", tt_status_name(saved.status), (int)sizeof c->failure - 64,
             saved.text);
    c->failed_rank = c->rank;
    c->differs = saved.status == TT_ERR_MISMATCH;
    tt__error_restore(&saved);
}

void tt__channels_fail(tt__channels *c) {
    tt__saved_error saved;
    tt__channels_mark_failed(c);
    tt__error_save(&saved);
    channel_header header = {.what = HAS_FAILED, .failed_rank = c->failed_rank};
    memcpy(header.failure, c->failure, sizeof header.failure);
    for (int64_t chunk = 0; chunk < c->chunks; chunk++)
        for (int way = TT__ONWARD; way <= TT__BACK; way++) {
            channel_ends ends = outgoing_ends(c, chunk, (tt__way)way);
            if (stage_exists(c, ends.to_stage) && ends.to_rank != c->rank)
                tt_ignore(send_channel_header(c, &ends, &header));
        }
    tt__error_restore(&saved);
}

/* How a step ended on a rank. */
typedef struct step_end {
    int32_t failed_rank; /* -1: well */
    int32_t differs;     /* the failure is TT_ERR_MISMATCH, which all ranks then return */
    char failure[sizeof((tt__channels *)0)->failure];
} step_end;

static tt_status compare_step_ends(tt__channels *c, const char *where, const step_end *all) {
    for (int r = 0; r < c->ranks; r++)
        if (all[r].failed_rank >= 0) {
            c->failed_rank = all[r].failed_rank;
            snprintf(c->failure, sizeof c->failure, "%.*s", (int)sizeof all[r].failure - 1, all[r].failure);
            return tt__fail(all[r].differs ? TT_ERR_MISMATCH : TT_ERR_PEER, "rank %d failed within %s: %s",
                            c->failed_rank, where, c->failure);
        }
    return TT_OK;
}

tt_status tt__channels_settle(tt__channels *c, const char *where) {
    bool failed = c->failed_rank >= 0;
    tt__saved_error saved;
    tt__error_save(&saved);
    step_end mine = {.failed_rank = c->failed_rank, .differs = c->differs},
             *all = calloc((size_t)c->ranks, sizeof *all);
    memcpy(mine.failure, c->failure, sizeof mine.failure);
    tt_status status =
        all ? tt_all_gather_with(
                  TT_ARGS(tt_all_gather_args, c->group, &mine, all, (int64_t)sizeof mine, TT_U8, .file = where))
            : tt__fail(TT_ERR_MEMORY, "no memory to learn how %d ranks came through %s", c->ranks, where);
    if (!all)
        tt__abort_with_error(c->group);
    if (!status && !failed)
        status = compare_step_ends(c, where, all);
    free(all);
    if (failed || !status)
        tt__error_restore(&saved);
    return failed ? TT_OK : status;
}

/* ---- receiving ---- */

static tt_tensor *take_handed(tt__channels *c, const channel_ends *ends, tt__way way) {
    tt__handed *h = c->handed[ends->from_chunk * 2 + way];
    if (!h)
        return tt__fail_null(TT_ERR_STATE, "nothing was handed over");
    c->handed[ends->from_chunk * 2 + way] = h->next;
    tt_tensor *x = tt_clone(h->tensor);
    tt_tensor_free(h->tensor);
    free(h);
    return x;
}

static tt_status recv_channel_header(tt__channels *c, const channel_ends *ends, int64_t m, channel_header *header) {
    TT__TRY(tt_recv_with(TT_ARGS(tt_recv_args, c->group, header, (int64_t)sizeof *header, TT_U8, ends->from_rank,
                                 .tag = ends->tag, .file = call_site)));
    if (header->what == HAS_FAILED) {
        memcpy(c->failure, header->failure, sizeof c->failure);
        c->failure[sizeof c->failure - 1] = '\0';
        c->failed_rank = header->failed_rank;
        return tt__fail(TT_ERR_PEER, "rank %d failed: %s", c->failed_rank, c->failure);
    }
    if (header->micro != m || header->ndim < 0 || header->ndim > TT_MAX_DIMS)
        return tt__fail(TT_ERR_PROTOCOL, "rank %d sent micro-batch %" PRId64, ends->from_rank, header->micro);
    return TT_OK;
}

static tt_tensor *recv_tensor(tt__channels *c, const channel_ends *ends, tt__way way, int64_t m) {
    channel_header header;
    tt_shape shape = {0};
    if (recv_channel_header(c, ends, m, &header))
        return NULL;
    shape.ndim = header.ndim;
    memcpy(shape.dim, header.dim, sizeof shape.dim);
    tt_tensor *x = tt_empty(shape, (tt_dtype)header.dtype);
    if (!x)
        return NULL;
    if (header.what == COMES_IN_SLOT) {
        const void *theirs = memory_of(c, ends->from_rank);
        if (!theirs || header.slot < 0 || header.slot >= c->slots)
            return tt__fail_null(TT_ERR_PROTOCOL, "rank %d sent a slot that is not there", ends->from_rank);
        memcpy(tt_tensor_data(x), slot_at(c, ends->from_rank, theirs, ends->from_chunk, way, header.slot),
               (size_t)tt_tensor_numel(x) * tt_dtype_size((tt_dtype)header.dtype));
        atomic_fetch_add_explicit(taken_count(c->memory, ends->to_chunk, way), 1, memory_order_release);
    } else if (tt_recv_with(TT_ARGS(tt_recv_args, c->group, tt_tensor_data(x), tt_tensor_numel(x),
                                    (tt_dtype)header.dtype, ends->from_rank, .tag = ends->tag + 1, .file = call_site)))
        return NULL;
    return header.channels_last ? tt_to_memory_format(x, TT_CHANNELS_LAST) : x;
}

tt_tensor *tt__channel_recv(tt__channels *c, int64_t chunk, tt__way way, int64_t m) {
    channel_ends ends = incoming_ends(c, chunk, way);
    TT_NO_GRAD;
    bool own = ends.from_rank == c->rank;
    tt_tensor *x = own ? take_handed(c, &ends, way) : recv_tensor(c, &ends, way, m);
    if (x && c->device)
        x = tt_to_device(x, c->device);
    if (!x)
        tt__fail_prefix("rank %d waited for the %s of micro-batch %" PRId64 " from stage %" PRId64 " (rank %d)",
                        c->rank, what_goes(way), m, ends.from_stage, ends.from_rank);
    return x;
}
