/* A device's memory as other processes of the host see it: the driver's descriptors for its pieces, and other
 * processes' ranges, mapped here. Only what was asked for is mapped, at the place that it has in its own range. */
#include "tensor/cuda/cuda_kernels_optim.h"
#include "tensor/cuda/device/cuda_state.h"

#include <stdlib.h>

typedef CUresult (*retain_function)(CUmemGenericAllocationHandle *, void *);
typedef CUresult (*export_function)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                    unsigned long long);
typedef CUresult (*import_function)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
typedef CUresult (*unreserve_function)(CUdeviceptr, size_t);

static struct {
    retain_function retain;
    export_function export;
    import_function import;
    unreserve_function unreserve;
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt_status found;

typedef struct mapped_piece {
    struct mapped_piece *next;
    uint64_t offset, bytes;
} mapped_piece;

typedef struct far_range {
    CUdeviceptr base;
    size_t bytes;
    mapped_piece *pieces;
} far_range;

static tt__cuda_state *sharing_state(const tt_device *device) { return (tt__cuda_state *)(void *)device; }

static void find_driver_functions(void) {
    const struct {
        const char *name;
        void *function;
    } all[] = {{"cuMemRetainAllocationHandle", &driver.retain},
               {"cuMemExportToShareableHandle", &driver.export},
               {"cuMemImportFromShareableHandle", &driver.import},
               {"cuMemAddressFree", &driver.unreserve}};
    for (size_t i = 0; i < sizeof all / sizeof *all && !found; i++)
        found = tt__cuda_driver_function(all[i].name, all[i].function);
}

/* Make the device current in this thread, and check that the driver has the functions. */
static tt_status begin_sharing(const tt__cuda_state *state) {
    tt_status status = tt__cuda_enter(state);
    if (status)
        return status;
    pthread_once(&once, find_driver_functions);
    return found ? tt__cuda_host->fail(found, "%s: the driver shares no memory between processes", state->name) : TT_OK;
}

static tt_status check_driver(const tt__cuda_state *state, CUresult result, const char *what) {
    return result ? tt__cuda_host->fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TT_ERR_MEMORY : TT_ERR_UNSUPPORTED,
                                        "%s of %s failed: CUDA error %d", what, state->name, (int)result)
                  : TT_OK;
}

/* ---- this process's memory ---- */

static tt_status sharing_piece(const tt_device *device, const void *memory, tt__device_piece *piece) {
    tt__cuda_state *state = sharing_state(device);
    const uint64_t at = (uint64_t)memory - state->arena.base;
    uint64_t offset = 0;
    *piece = (tt__device_piece){.range = state->arena.reserved};
    pthread_mutex_lock(&state->lock);
    for (size_t i = 0; i < state->piece_count && !piece->bytes; offset += state->pieces[i++].bytes)
        if (at >= offset && at - offset < state->pieces[i].bytes)
            *piece = (tt__device_piece){.serial = state->pieces[i].serial,
                                        .range = state->arena.reserved,
                                        .offset = offset,
                                        .bytes = state->pieces[i].bytes,
                                        .at = at - offset};
    pthread_mutex_unlock(&state->lock);
    return piece->bytes ? TT_OK : tt__cuda_host->fail(TT_ERR_INVALID, "%p is no memory of %s", memory, state->name);
}

static tt_status sharing_give(const tt_device *device, const void *memory, int *fd) {
    const tt__cuda_state *state = sharing_state(device);
    CUmemGenericAllocationHandle handle;
    tt_status status = begin_sharing(state);
    if (!status)
        status = check_driver(state, driver.retain(&handle, (void *)memory), "asking for a piece of the memory");
    if (status)
        return status;
    CUresult result = driver.export(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    tt__cuda_release(handle);
    return check_driver(state, result, "sharing memory");
}

/* ---- other processes' ---- */

static tt_status sharing_range_new(const tt_device *device, uint64_t bytes, void **range) {
    const tt__cuda_state *state = sharing_state(device);
    far_range *r = calloc(1, sizeof *r);
    *range = NULL;
    if (!r)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "no memory for a range of another process");
    tt_status status = begin_sharing(state);
    if (!status)
        status = check_driver(state, tt__cuda_reserve(&r->base, bytes), "reserving addresses");
    if (status) {
        free(r);
        return status;
    }
    r->bytes = bytes;
    *range = r;
    return TT_OK;
}

static bool overlaps(const mapped_piece *m, const tt__device_piece *piece) {
    return m->offset < piece->offset + piece->bytes && piece->offset < m->offset + m->bytes;
}

/* Unmap what lies where `piece` is to lie; NULL: everything. */
static void unmap_pieces(far_range *r, const tt__device_piece *piece) {
    for (mapped_piece **at = &r->pieces; *at;) {
        mapped_piece *m = *at;
        if (piece && !overlaps(m, piece)) {
            at = &m->next;
            continue;
        }
        tt__cuda_unmap(r->base + m->offset, m->bytes);
        *at = m->next;
        free(m);
    }
}

static tt_status sharing_range_take(const tt_device *device, void *range, const tt__device_piece *piece, int fd) {
    const tt__cuda_state *state = sharing_state(device);
    far_range *r = range;
    CUmemGenericAllocationHandle handle;
    if (piece->bytes > r->bytes || piece->offset > r->bytes - piece->bytes)
        return tt__cuda_host->fail(TT_ERR_INVALID, "a piece of %llu bytes at %llu lies outside of a range of %zu",
                                   (unsigned long long)piece->bytes, (unsigned long long)piece->offset, r->bytes);
    tt_status status = begin_sharing(state);
    mapped_piece *m = status ? NULL : calloc(1, sizeof *m);
    if (!m)
        return status ? status : tt__cuda_host->fail(TT_ERR_MEMORY, "no memory for a piece of another process");
    unmap_pieces(r, piece);
    CUresult result = driver.import(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (!result)
        result = tt__cuda_map(state, r->base + piece->offset, piece->bytes, handle);
    if (result) {
        free(m);
        return check_driver(state, result, "mapping another process's memory into the addresses");
    }
    *m = (mapped_piece){.next = r->pieces, .offset = piece->offset, .bytes = piece->bytes};
    r->pieces = m;
    return TT_OK;
}

static void *sharing_range_at(const void *range, uint64_t offset) {
    return (void *)(uintptr_t)(((const far_range *)range)->base + offset);
}

static void sharing_range_free(const tt_device *device, void *range) {
    far_range *r = range;
    if (!r)
        return;
    if (!tt__cuda_enter(sharing_state(device))) {
        unmap_pieces(r, NULL);
        driver.unreserve(r->base, r->bytes);
    }
    free(r);
}

/* ---- sums ---- */

static tt_status sharing_sum(const tt_device *device, const tt__device_sum *sum, void **mark) {
    const tt__cuda_state *state = sharing_state(device);
    tt_status status = tt__cuda_refuse(state, "summing over ranks on %s", state->name);
    if (!status)
        status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(tt__cuda_sum_peers(state->sender, sum), "summing %zu elements of %d ranks on %s",
                                sum->count, sum->n, state->name);
    return status ? status : tt__cuda_mark_sender(state, mark);
}

const tt__device_sharing tt__cuda_sharing = {.piece = sharing_piece,
                                             .give = sharing_give,
                                             .range_new = sharing_range_new,
                                             .range_take = sharing_range_take,
                                             .range_at = sharing_range_at,
                                             .range_free = sharing_range_free,
                                             .sum = sharing_sum};
