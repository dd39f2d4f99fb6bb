/* A rank's shared memory, a sealed, sparse memfd, and the heap in it. The memfd has no name in any file system, so
 * nothing is left after a crash, and no limit but the machine's memory (a container's /dev/shm is often 64 MiB). */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/limits.h"
#include "base/text/parse.h"
#include "comm/shared/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static const uint64_t MAGIC = UINT64_C(0x3369747475745454); /* "TTtutti3" */

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* "64M" as bytes. */
static tt_status parse_size(const char *what, const char *text, size_t *bytes) {
    static const char suffixes[] = "KMGT";
    char digits[32];
    size_t n = strlen(text);
    const char *suffix = n ? strchr(suffixes, text[n - 1]) : NULL;
    n -= suffix != NULL;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    int64_t value = 0;
    snprintf(digits, sizeof digits, "%.*s", (int)(n < sizeof digits ? n : 0), text);
    if (tt__parse_i64(what, digits, TT__PAGE >> (shift < 12 ? shift : 12), (INT64_C(1) << 46) >> shift, &value))
        return tt__fail(TT_ERR_INVALID, "%s: expected bytes from 4096 to 64T, such as 64M or 2G, got \"%.100s\"", what,
                        text);
    *bytes = (size_t)value << shift;
    return TT_OK;
}

tt_status tt__shm_heap_bytes(size_t *bytes) {
    const char *text = getenv("TT_SYMMETRIC_HEAP");
    struct sysinfo info;
    if (text && *text)
        TT__TRY(parse_size("TT_SYMMETRIC_HEAP", text, bytes));
    else if (sysinfo(&info))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "sysinfo");
    else
        *bytes = (size_t)info.totalram * info.mem_unit;
    *bytes &= ~(size_t)(TT__PAGE - 1);
    return TT_OK;
}

static tt_status map_memory(tt__shm *shm, int fd, size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return tt__fail_errno(TT_ERR_MEMORY, errno,
                              "can't reserve %zu bytes of address space for the symmetric heap (TT_SYMMETRIC_HEAP sets "
                              "a smaller one)",
                              size);
    madvise(at, size, MADV_DONTDUMP); /* a core file would be as large as the reservation */
    shm->base = at;
    shm->size = size;
    return TT_OK;
}

static void control_init(tt__control *control, int rank, int world) {
    cpu_set_t cpus;
    tt__recorder_init(&control->recorder, rank, world);
    control->magic = MAGIC;
    control->rank = rank;
    control->cpu_quota = (uint32_t)tt__cores();
    if (!sched_getaffinity(0, sizeof cpus, &cpus))
        for (int cpu = 0; cpu < 64 * TT__CPU_MASK_WORDS && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &cpus))
                control->cpu_mask[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

/* Room for areas, beside what is allocated; how many there must be room for. */
enum { SPARE_AREAS = 64, LEAST_AREAS = 4 };

/* Return the addresses that this process has taken, as `ulimit -v` counts them. */
static size_t taken_addresses(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long pages = 0;
    if (file && fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Return the addresses for all ranks' memory together: half of a process's 128 TiB, or of what `ulimit -v` leaves. */
static size_t free_addresses(void) {
    const size_t half = (size_t)64 << 40;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return half;
    size_t taken = taken_addresses();
    return limit.rlim_cur > taken ? min_size(half, (limit.rlim_cur - taken) / 2) : 0;
}

/* Choose the size of a rank's memory: enough for a heap of `heap_bytes`, or as much as the process's limits allow. The
 * kernel kills a process that sizes a memfd beyond `ulimit -f`. */
static tt_status choose_size(int ranks, size_t heap_bytes, size_t *size) {
    const size_t least = TT__HEAP_AT + LEAST_AREAS * TT__AREA_BYTES;
    struct rlimit file;
    size_t by_addresses = free_addresses() / (size_t)ranks, by_file = SIZE_MAX;
    if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur != RLIM_INFINITY)
        by_file = file.rlim_cur;
    *size = min_size(TT__HEAP_AT + SPARE_AREAS * TT__AREA_BYTES + heap_bytes, min_size(by_addresses, by_file));
    *size &= ~(size_t)(TT__PAGE - 1);
    if (*size >= least)
        return TT_OK;
    return tt__fail(TT_ERR_MEMORY,
                    "each of %d ranks needs %zu bytes of shared memory; the limit on %s allows %zu: raise it", ranks,
                    least, by_file < by_addresses ? "a file's size (ulimit -f)" : "addresses (ulimit -v)", *size);
}

tt_status tt__shm_create(tt__shm *shm, int *fd, int rank, int world, size_t heap_bytes) {
    size_t size;
    TT__TRY(choose_size(world < TT__MAX_HOST_RANKS ? world : TT__MAX_HOST_RANKS, heap_bytes, &size));
    int memory = tt__fd(memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (memory < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make shared memory (memfd_create)");
    tt_status status = TT_OK;
    if (ftruncate(memory, (off_t)size) || fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        status = tt__fail_errno(TT_ERR_MEMORY, errno, "can't size shared memory to %zu bytes", size);
    if (!status)
        status = map_memory(shm, memory, size);
    if (!status)
        status = tt__shm_commit(shm, memory, 0, TT__ALIGN_UP(sizeof(tt__control), TT__PAGE));
    if (status) {
        tt__shm_unmap(shm);
        close(memory);
        return status;
    }
    control_init(tt__shm_control(shm), rank, world);
    *fd = memory;
    return TT_OK;
}

tt_status tt__shm_map_peer(tt__shm *shm, int fd, int rank) {
    struct stat info;
    if (!tt__is_sealed_memory(fd) || fstat(fd, &info) || (size_t)info.st_size < TT__HEAP_AT + TT__AREA_BYTES)
        return tt__fail(TT_ERR_PROTOCOL, "what rank %d handed over is not a sealed shared memory of Tutti", rank);
    TT__TRY(map_memory(shm, fd, (size_t)info.st_size));
    const tt__control *control = tt__shm_control(shm);
    if (control->magic == MAGIC && control->rank == rank)
        return TT_OK;
    tt__shm_unmap(shm);
    return tt__fail(TT_ERR_PROTOCOL, "the shared memory of rank %d is not laid out as this version of Tutti does",
                    rank);
}

void tt__shm_unmap(tt__shm *shm) {
    if (shm->base)
        munmap(shm->base, shm->size);
    shm->base = NULL;
}

/* Return the bytes of memory that the machine has available; SIZE_MAX if it doesn't say. */
static size_t available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = 0;
    size_t bytes = SIZE_MAX;
    if (!file)
        return bytes;
    while (bytes == SIZE_MAX && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (size_t)kib << 10;
    fclose(file);
    return bytes;
}

/* Allocations above this size check the free memory first: the kernel would rather kill a process than refuse. */
static const size_t LARGE = (size_t)64 << 20, HUGE_PAGE = (size_t)2 << 20;

tt_status tt__shm_check_free(size_t bytes, int ranks) {
    if (bytes < LARGE)
        return TT_OK;
    size_t machine = available_bytes(), group = tt__cgroup_memory_left(""), available = min_size(machine, group);
    if (bytes <= available / (size_t)ranks)
        return TT_OK;
    return tt__fail(TT_ERR_MEMORY, "%zu bytes of shared memory for each of %d ranks: %s %zu bytes free", bytes, ranks,
                    group < machine ? "the memory limit of this control group (container) leaves" : "this machine has",
                    available);
}

tt_status tt__shm_commit(const tt__shm *shm, int fd, size_t offset, size_t bytes) {
    /* Hints that an old kernel may lack. Pages that are touched through the mapping may be huge ones; those of
     * fallocate() may not. */
    if (bytes >= HUGE_PAGE)
        madvise(shm->base + offset, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    madvise(shm->base + offset, bytes, MADV_POPULATE_WRITE);
#endif
    int failed;
    do
        failed = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed ? tt__fail(TT_ERR_MEMORY, "%zu bytes of shared memory: %s", bytes, strerror(errno)) : TT_OK;
}

/* Give pages of this rank's memory back to the system. */
static void shm_release(const tt__shm *shm, size_t offset, size_t bytes) {
    if (madvise(shm->base + offset, bytes, MADV_REMOVE))
        tt__log(TT_LOG_WARNING, "could not give back %zu bytes of shared memory: %s", bytes, strerror(errno));
}

/* ---- the heap, by first fit. Everything is whole pages, so that freed pages go back to the system, and taken ones are
 * zero. */

tt_status tt__heap_init(tt__heap *heap, const tt__shm *shm, size_t limit) {
    tt__extent *all = calloc(1, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for the heap's list");
    all->offset = TT__HEAP_AT;
    all->bytes = shm->size - TT__HEAP_AT;
    *heap = (tt__heap){.shm = shm, .extents = all, .limit = limit};
    return TT_OK;
}

void tt__heap_end(tt__heap *heap) {
    while (heap->extents) {
        tt__extent *extent = heap->extents;
        heap->extents = extent->next;
        free(extent);
    }
}

/* Cut `extent` after `bytes`; the rest becomes a free extent. */
static tt_status extent_split(tt__extent *extent, size_t bytes) {
    if (extent->bytes == bytes)
        return TT_OK;
    tt__extent *rest = malloc(sizeof *rest);
    if (!rest)
        return tt__fail(TT_ERR_MEMORY, "no memory for the heap's list");
    *rest = (tt__extent){extent->next, extent->offset + bytes, extent->bytes - bytes, false};
    extent->next = rest;
    extent->bytes = bytes;
    return TT_OK;
}

/* Join `extent` with the next one while both are free. */
static void extent_merge(tt__extent *extent) {
    while (!extent->used && extent->next && !extent->next->used) {
        tt__extent *next = extent->next;
        extent->bytes += next->bytes;
        extent->next = next->next;
        free(next);
    }
}

static tt_status fail_full(const tt__heap *heap, size_t bytes) {
    return tt__fail(
        TT_ERR_MEMORY,
        "%zu bytes don't fit the symmetric heap of %zu bytes, of which %zu are taken (TT_SYMMETRIC_HEAP sets it)",
        bytes, heap->limit, heap->allocated);
}

tt_status tt__heap_take(tt__heap *heap, size_t bytes, bool limited, tt__extent **out) {
    if (limited && bytes > heap->limit - heap->allocated)
        return fail_full(heap, bytes);
    tt__extent *extent = heap->extents;
    while (extent && (extent->used || extent->bytes < bytes))
        extent = extent->next;
    if (!extent)
        return fail_full(heap, bytes);
    TT__TRY(extent_split(extent, bytes));
    extent->used = true;
    if (limited)
        heap->allocated += bytes;
    *out = extent;
    return TT_OK;
}

void tt__heap_give_back(tt__heap *heap, tt__extent *extent, bool limited) {
    if (!extent)
        return;
    shm_release(heap->shm, extent->offset, extent->bytes);
    if (limited)
        heap->allocated -= extent->bytes;
    extent->used = false;
    for (tt__extent *e = heap->extents; e; e = e->next)
        extent_merge(e);
}

void tt__heap_abandon(tt__heap *heap, tt__extent *extent) {
    shm_release(heap->shm, extent->offset, extent->bytes);
    heap->allocated -= extent->bytes;
}
