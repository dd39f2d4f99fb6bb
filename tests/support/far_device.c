#include "support/far_device.h"

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY = 64 << 20, ALIGNMENT = 64, RANGES = 4096 };

/* The memory in order of address, in ranges that are in use or free. */
typedef struct range {
    size_t bytes;
    bool used;
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *far, *near;
static range ranges[RANGES];
static int range_count, live, fail_at;

void *far_device_near(const void *p) { return near + ((const char *)p - far); }

int far_device_live_blocks(void) {
    pthread_mutex_lock(&lock);
    int n = live;
    pthread_mutex_unlock(&lock);
    return n;
}

void far_device_fail_nth(int n) {
    pthread_mutex_lock(&lock);
    fail_at = n;
    pthread_mutex_unlock(&lock);
}

/* ---- memory: first fit; neighbours that are free are one range ---- */

static void take_range(int i, size_t bytes) {
    if (ranges[i].bytes > bytes && range_count < RANGES) {
        memmove(&ranges[i + 2], &ranges[i + 1], (size_t)(range_count - i - 1) * sizeof *ranges);
        ranges[i + 1] = (range){.bytes = ranges[i].bytes - bytes};
        ranges[i].bytes = bytes;
        range_count++;
    }
    ranges[i].used = true;
    live++;
}

static void *first_fit(size_t bytes) {
    size_t at = 0;
    for (int i = 0; i < range_count; at += ranges[i++].bytes)
        if (!ranges[i].used && ranges[i].bytes >= bytes) {
            take_range(i, bytes);
            return far + at;
        }
    return NULL;
}

static void *far_alloc(const tt_device *device, size_t bytes) {
    (void)device;
    pthread_mutex_lock(&lock);
    bool fails = fail_at > 0 && --fail_at == 0;
    void *p = fails || bytes > MEMORY ? NULL : first_fit((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    pthread_mutex_unlock(&lock);
    return p ? p : tt__fail_null(TT_ERR_MEMORY, "far has no %zu bytes", bytes);
}

static void join_with_next(int i) {
    if (i < 0 || i + 1 >= range_count || ranges[i].used || ranges[i + 1].used)
        return;
    ranges[i].bytes += ranges[i + 1].bytes;
    memmove(&ranges[i + 1], &ranges[i + 2], (size_t)(range_count - i - 2) * sizeof *ranges);
    range_count--;
}

static void far_free(const tt_device *device, void *p) {
    (void)device;
    pthread_mutex_lock(&lock);
    size_t offset = (size_t)((char *)p - far), at = 0;
    int i = 0;
    while (at < offset)
        at += ranges[i++].bytes;
    ranges[i].used = false;
    live--;
    join_with_next(i);
    join_with_next(i - 1);
    pthread_mutex_unlock(&lock);
}

static tt_status far_to_host(const tt_device *device, void *host, const void *from, size_t bytes) {
    (void)device;
    memcpy(host, far_device_near(from), bytes);
    return TT_OK;
}

static tt_status far_from_host(const tt_device *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(far_device_near(to), host, bytes);
    return TT_OK;
}

/* ---- the device ---- */

static const tt_device device = {.name = "far",
                                 .alloc = far_alloc,
                                 .free = far_free,
                                 .to_host = far_to_host,
                                 .from_host = far_from_host,
                                 .kernels = far_kernels};

static bool map_memory(void) {
    int fd = memfd_create("far", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    void *here = MAP_FAILED, *there = MAP_FAILED;
    if (!ftruncate(fd, MEMORY)) {
        here = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        there = mmap(NULL, MEMORY, PROT_NONE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (here == MAP_FAILED || there == MAP_FAILED)
        return false;
    near = here;
    far = there;
    ranges[0] = (range){.bytes = MEMORY};
    range_count = 1;
    return true;
}

const tt_device *far_device(void) {
    pthread_mutex_lock(&lock);
    bool there = near || map_memory();
    pthread_mutex_unlock(&lock);
    if (!there)
        return tt__fail_null(TT_ERR_MEMORY, "far_device: no memory: %s", strerror(errno));
    return tt__device_register(&device) ? NULL : &device;
}
