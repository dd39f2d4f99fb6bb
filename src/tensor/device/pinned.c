/* A block has a mark of the last copy from it, which tells when its memory may be written again.
 *
 * Forked children don't get the memory: otherwise a parent that writes to it before the child calls exec() would write
 * to a copy, while the device still reads the old pages. */
#include "tensor/device/pinned.h"

#include "base/error.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct tt__pinned {
    const tt_device *device;
    void *data;
    size_t bytes;
    pid_t owner;          /* the process that has the memory */
    pthread_mutex_t lock; /* of the mark */
    void *mark;           /* of the last copy; NULL: it has ended */
    tt__pinned *next;     /* of those that are kept */
};

/* The blocks that are kept, the last one given first. */
enum { MOST_KEPT = 64 };
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static tt__pinned *kept;
static size_t kept_bytes, kept_count;

/* Let a forked child forget the list and the state of its lock, which are the parent's. */
static void forget_kept(void) {
    pthread_mutex_init(&kept_lock, NULL);
    kept = NULL;
    kept_bytes = kept_count = 0;
}

static void kept_watch_forks(void) { pthread_atfork(NULL, NULL, forget_kept); }

static void lock_kept(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, kept_watch_forks);
    pthread_mutex_lock(&kept_lock);
}

void *tt__pinned_data(const tt__pinned *block) { return block->data; }
const tt_device *tt__pinned_device(const tt__pinned *block) { return block->device; }
bool tt__pinned_is_elsewhere(const tt__pinned *block) { return block->owner != getpid(); }

/* ---- marks ---- */

/* Ask whether the last copy has ended, or wait for it. A copy that failed counts as ended. */
static tt_status settle(tt__pinned *block, bool wait, bool *done) {
    tt_status status = TT_OK;
    *done = true;
    pthread_mutex_lock(&block->lock);
    if (block->mark) {
        status = block->device->queue->sent(block->device, block->mark, wait, done);
        if (*done || status)
            block->mark = NULL;
    }
    pthread_mutex_unlock(&block->lock);
    return status;
}

bool tt__pinned_is_read(tt__pinned *block) {
    tt__saved_error saved;
    bool done;
    tt__error_save(&saved);
    tt_ignore(settle(block, false, &done));
    tt__error_restore(&saved);
    return done;
}

static tt_status check_pinned_owner(const tt__pinned *block) {
    if (!tt__pinned_is_elsewhere(block))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "expected memory of this process (%d), got memory that its parent (%d) has pinned for copies to "
                    "%s, which forked children don't have",
                    (int)getpid(), (int)block->owner, block->device->name);
}

tt_status tt__pinned_wait(tt__pinned *block) {
    bool done;
    TT__TRY(check_pinned_owner(block));
    return settle(block, true, &done);
}

tt_status tt__pinned_copy(tt__pinned *block, void *to, const void *from, size_t bytes) {
    const tt_device *device = block->device;
    TT__TRY(check_pinned_owner(block)); /* first: a child's lock may be held by a thread that it lacks */
    pthread_mutex_lock(&block->lock);
    tt_status status = device->queue->receive(device, to, from, bytes);
    if (!status)
        status = device->queue->mark(device, &block->mark);
    pthread_mutex_unlock(&block->lock);
    return status;
}

/* ---- blocks ---- */

static void block_end(tt__pinned *block) {
    if (block->data)
        munmap(block->data, block->bytes);
    pthread_mutex_destroy(&block->lock);
    free(block);
}

/* Map memory that no forked child gets. */
static void *map_pages(size_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    if (!madvise(data, bytes, MADV_DONTFORK))
        return data;
    munmap(data, bytes);
    return NULL;
}

static tt__pinned *block_new(const tt_device *device, size_t bytes) {
    tt__pinned *block = calloc(1, sizeof *block);
    if (!block)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a pinned block");
    pthread_mutex_init(&block->lock, NULL);
    block->device = device;
    block->bytes = bytes;
    block->owner = getpid();
    block->data = map_pages(bytes);
    tt_status status = block->data ? device->queue->pin(device, block->data, bytes)
                                   : tt__fail(TT_ERR_MEMORY, "no memory for %zu pinned bytes", bytes);
    if (!status)
        return block;
    block_end(block);
    return NULL;
}

/* Make a block; NULL, without an error: that failed. */
static tt__pinned *try_block(const tt_device *device, size_t bytes) {
    static atomic_bool told;
    tt__saved_error saved;
    tt__error_save(&saved);
    tt__pinned *block = block_new(device, bytes);
    if (!block && !atomic_exchange(&told, true))
        tt__log(TT_LOG_INFO, "copies to %s are slower: %s", device->name, tt_last_error());
    tt__error_restore(&saved);
    return block;
}

/* Wait for copies, and free the block. */
static void block_free(tt__pinned *block) {
    tt__saved_error saved;
    tt__error_save(&saved);
    tt_ignore(tt__pinned_wait(block));
    block->device->queue->unpin(block->device, block->data);
    block_end(block);
    tt__error_restore(&saved);
}

/* ---- what is kept ---- */

static tt__pinned *unlink_kept(tt__pinned **at) {
    tt__pinned *block = *at;
    *at = block->next;
    kept_bytes -= block->bytes;
    kept_count--;
    return block;
}

/* Does it fit without wasting more than half of it? */
static bool kept_fits(const tt__pinned *block, const tt_device *device, size_t bytes) {
    return block->device == device && block->bytes >= bytes && block->bytes / 2 <= bytes &&
           !tt__pinned_is_elsewhere(block);
}

static tt__pinned *take_kept(const tt_device *device, size_t bytes) {
    tt__pinned *block = NULL;
    lock_kept();
    for (tt__pinned **at = &kept; *at && !block; at = &(*at)->next)
        if (kept_fits(*at, device, bytes) && tt__pinned_is_read(*at)) {
            block = unlink_kept(at);
            break;
        }
    pthread_mutex_unlock(&kept_lock);
    return block;
}

tt__pinned *tt__pinned_take(const tt_device *device, size_t bytes) {
    if (!device || !device->queue || !bytes)
        return NULL;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bytes = (bytes + page - 1) / page * page;
    tt__pinned *block = take_kept(device, bytes);
    return block ? block : try_block(device, bytes);
}

/* Take the oldest one out if there are too many. */
static tt__pinned *one_too_many(void) {
    tt__pinned **at = &kept;
    if (kept_bytes <= TT__PINNED_KEPT && kept_count <= MOST_KEPT)
        return NULL;
    while ((*at)->next)
        at = &(*at)->next;
    return unlink_kept(at);
}

void tt__pinned_give(tt__pinned *block) {
    if (!block)
        return;
    if (tt__pinned_is_elsewhere(block)) {
        free(block); /* its memory and its mark are the parent's */
        return;
    }
    lock_kept();
    block->next = kept;
    kept = block;
    kept_bytes += block->bytes;
    kept_count++;
    while ((block = one_too_many())) {
        pthread_mutex_unlock(&kept_lock);
        block_free(block);
        lock_kept();
    }
    pthread_mutex_unlock(&kept_lock);
}

void tt__pinned_trim(const tt_device *device) {
    tt__pinned *all = NULL;
    lock_kept();
    for (tt__pinned **at = &kept; *at;)
        if ((*at)->device == device) {
            tt__pinned *block = unlink_kept(at);
            block->next = all;
            all = block;
        } else {
            at = &(*at)->next;
        }
    pthread_mutex_unlock(&kept_lock);
    while (all) {
        tt__pinned *block = all;
        all = all->next;
        block_free(block);
    }
}
