/* What launchers and `tutti top` read of other processes: the blob in which a node shows its ranks, their recorders,
 * and the view, text and JSON that are made of them.
 *
 * Input: a mode byte, then
 *   even mode: a blob.
 *   odd mode: patches of a good blob of two ranks: place (three bytes), length, and that many bytes. */
#include "cli/look/job_view.h"
#include "launch/local/snapshot.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, CALLS = 8 };

static void write_calls(tt__recorder *recorder) {
    for (int i = 0; i < CALLS; i++) {
        tt__record_slot *record =
            tt__record_begin(recorder, "train.c", 10 + i,
                             (tt__call_record){.seq = (uint32_t)i + 1,
                                               .op = i % 2 ? TT_OP_ALL_REDUCE : TT_OP_ALL_GATHER_V,
                                               .dtype = TT_F32,
                                               .count = 512});
        uint32_t number = atomic_load(&record->number);
        tt__record_ready(record, TT__CALL_BEGUN);
        if (i + 1 < CALLS)
            tt__record_done(record, number, TT__CALL_DONE, true);
        if (i % 2)
            tt__record_put_device(recorder, &(tt__record_device){number, TT_DEVICE_CUDA, 1, tt__now_ns(), 1000});
    }
}

static void write_rpc(tt__recorder *recorder) {
    tt__rpc_record_name(recorder, 2, "step");
    for (int i = 0; i < CALLS; i++) {
        uint32_t number = tt__rpc_record_begin(recorder, 2, 1, 4096);
        if (i + 1 < CALLS)
            tt__rpc_record_done(recorder, number, TT__CALL_DONE, 0);
    }
    tt__rpc_publish(recorder, &(tt__rpc_shown){.name = "ps", .threads = 16, .makers = {{.count = 3, .function = 2}}});
}

/* The good blob is made once: patches go into a copy. */
static void *good_blob(size_t *size) {
    static void *blob;
    static size_t blob_size;
    tt__snapshot snapshot = {0};
    tt__seen_rank ranks[RANKS] = {0};
    for (int r = 0; !blob && r < RANKS; r++) {
        tt__recorder *recorder = aligned_alloc(_Alignof(tt__recorder), sizeof *recorder);
        memset((void *)recorder, 0, sizeof *recorder);
        tt__recorder_init(recorder, r, RANKS);
        tt__recorder_name_group(recorder, 0, (const int[]){0, 1}, RANKS);
        write_calls(recorder);
        write_rpc(recorder);
        tt__waiting waits = {.seq = CALLS, .whom = 1 - r, .since = tt__ticks()};
        tt__recorder_wait(recorder, &waits);
        ranks[r] = (tt__seen_rank){.rank = {.rank = r, .node = 1, .state = TT__JOB_RUNNING, .now = tt__moment_now()},
                                   .memory = -1,
                                   .recorder = recorder};
        ranks[r].rank.at.size = sizeof *recorder;
    }
    snapshot.ranks = ranks;
    snapshot.n = RANKS;
    if (!blob && tt__blob_pack(&snapshot, 1, &blob, &blob_size))
        abort();
    for (int r = 0; r < RANKS; r++)
        free((void *)(uintptr_t)ranks[r].recorder);
    *size = blob_size;
    return blob;
}

static void look_at(const void *blob, size_t size) {
    tt__snapshot snapshot = {0};
    tt__view view;
    char *text = NULL;
    size_t length = 0;
    if (tt__blob_unpack(&snapshot, 1 << 16, blob, size)) {
        tt__snapshot_free(&snapshot);
        return;
    }
    if (tt__view_make(&view, &snapshot))
        return;
    FILE *out = open_memstream(&text, &length);
    if (!out || tt__top_text(&view, &(tt__top_page){.columns = 80}, out) || tt__top_json(&view, out))
        abort();
    fclose(out);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\033' || text[i] == '\r' || text[i] == '\a') /* of nobody's names */
            abort();
    free(text);
    tt__view_free(&view);
}

/* Make the check of a record right, as whoever means harm would. */
static void seal_record(uint8_t *at) {
    tt__record_slot slot;
    memcpy((void *)&slot, at, sizeof slot);
    uint32_t kind = atomic_load(&slot.kind);
    const tt__call_record record = {.number = atomic_load(&slot.number),
                                    .group = atomic_load(&slot.group),
                                    .op = (uint8_t)kind,
                                    .dtype = (uint8_t)(kind >> 8),
                                    .reduce_op = (uint8_t)(kind >> 16),
                                    .flags = (uint8_t)(kind >> 24),
                                    .root = atomic_load(&slot.root),
                                    .line = atomic_load(&slot.line),
                                    .count = atomic_load(&slot.count),
                                    .begin = atomic_load(&slot.begin),
                                    .file = atomic_load(&slot.file),
                                    .tag = atomic_load(&slot.tag)};
    atomic_store(&slot.check, tt__record_check(&record));
    memcpy(at, (const void *)&slot, sizeof slot);
}

static void seal_device(uint8_t *at) {
    tt__device_slot slot;
    memcpy((void *)&slot, at, sizeof slot);
    uint32_t device = atomic_load(&slot.device);
    const tt__record_device ran = {.number = atomic_load(&slot.number),
                                   .type = (uint16_t)(device >> 16),
                                   .index = (uint16_t)device,
                                   .begin_ns = (int64_t)atomic_load(&slot.begin_ns),
                                   .duration_ns = (int64_t)atomic_load(&slot.duration_ns)};
    atomic_store(&slot.check, tt__record_device_check(&ran));
    memcpy(at, (const void *)&slot, sizeof slot);
}

static void seal_recorders(uint8_t *blob, size_t size) {
    const uint64_t magic = TT__RECORDER_MAGIC;
    uint8_t *end = blob + size, *at = blob;
    while ((at = memmem(at, (size_t)(end - at), &magic, sizeof magic)) && (size_t)(end - at) >= sizeof(tt__recorder)) {
        for (size_t i = 0; i < TT__RECORDS; i++) {
            seal_record(at + offsetof(tt__recorder, records) + i * sizeof(tt__record_slot));
            seal_device(at + offsetof(tt__recorder, devices) + i * sizeof(tt__device_slot));
        }
        at += sizeof(tt__recorder);
    }
}

static void patch(const uint8_t *data, size_t size) {
    size_t whole;
    const void *good = good_blob(&whole);
    uint8_t *blob = malloc(whole);
    if (!blob)
        return;
    memcpy(blob, good, whole);
    while (size >= 4) {
        size_t at = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % whole, n = data[3];
        n = n < size - 4 ? n : size - 4;
        n = n < whole - at ? n : whole - at;
        memcpy(blob + at, data + 4, n);
        data += 4 + n;
        size -= 4 + n;
    }
    seal_recorders(blob, whole);
    look_at(blob, whole);
    free(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] % 2)
        patch(data + 1, size - 1);
    else if (size)
        look_at(data + 1, size - 1);
    return 0;
}
