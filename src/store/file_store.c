/* FileStore: keys in a file that grows. Every change is a record at its end, and each user keeps a copy of the table
 * that the records make.
 *
 * The format is PyTorch's: u32 length, key, u32 length, value. Keys have a leading slash; a deleted key is written
 * again as "-/key"; "cleanup/" counts the users that have finished. flock() guards the file: exclusive for writers,
 * shared for readers. The next writer cuts off a record that a killed process left half written. PyTorch's newer
 * releases also count in "refcount/", which is of no use beside "cleanup/".
 *
 * With .fresh a user also holds a lock of another kind, far beyond the end of the file, for as long as it lives
 * (F_OFD_SETLK: it ends with the process, however that ends). A user that finds the lock free knows that the records
 * are from an earlier job. */
#include "base/args.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/planted.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/quarantine.h"
#include "store/local_store.h"
#include "store/store_ops.h"
#include "store/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLEANUP_KEY "cleanup/"

enum { READ_SIZE = 64 * 1024, LOCK_PAUSE_US = 200, PAUSE_FIRST_MS = 1, PAUSE_LAST_MS = 10, GRACE_MS = 2000 };

typedef struct file_store {
    tt__local_store base;
    char *path;
    int world_size;
    bool fresh;
    bool leaving;       /* do not make the file again only to count this user as finished */
    tt__call_lock lock; /* guards the rest and the table */
    int fd;             /* -1: not open */
    off_t known;        /* how much of the file the table has read */
    int64_t finished;
    long pause_ms;
} file_store;

static file_store *file_of(tt__local_store *store) { return (file_store *)store; }

static tt_status fail_io(const char *what, int errnum) { return tt__fail_errno(TT_ERR_IO, errnum, "%s", what); }

static void forget_entries(file_store *f) {
    tt__store_table_free(&f->base.table);
    tt__store_table_init(&f->base.table);
    f->known = 0;
    f->finished = 0;
}

/* ---- the file and its locks */

static tt_status lock_file(file_store *f, int kind, int64_t deadline_ms) {
    for (int tries = 0; flock(f->fd, kind | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fail_io("locking the file", errno);
        if (!tt__left_ms(deadline_ms))
            return tt__fail(TT_ERR_TIMEOUT, "another process holds the file's lock. Is one stopped?");
        if (tries < 10)
            sched_yield();
        else
            tt__sleep_us(LOCK_PAUSE_US);
    }
    return TT_OK;
}

/* Does the file that we opened still have its name? The last user of an earlier job may have removed it. */
static bool is_still_there(const file_store *f) {
    struct stat ours, there;
    return !fstat(f->fd, &ours) && !lstat(f->path, &there) && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static void close_file(file_store *f) {
    if (f->fd >= 0)
        close(f->fd); /* this releases all locks, too */
    f->fd = -1;
    forget_entries(f);
}

/* Refuse what another user may have put there, as in /tmp, so that we write into it: a link, a file of that user, or no
 * regular file. */
static tt_status check_owner(const file_store *f) {
    struct stat file;
    if (fstat(f->fd, &file))
        return fail_io("looking at the file", errno);
    if (!S_ISREG(file.st_mode))
        return tt__fail(TT_ERR_IO, "expected a regular file, but this is a device, a pipe or a folder");
    if (file.st_nlink > 1)
        return tt__fail(TT_ERR_IO, "this file has several names (hard links); choose another path, or remove it");
    if (file.st_uid != geteuid())
        return tt__fail(TT_ERR_AUTH,
                        "the file belongs to user %u, not to this process's user, %u; choose another path, or "
                        "remove it",
                        (unsigned)file.st_uid, (unsigned)geteuid());
    return TT_OK;
}

static tt_status open_file(file_store *f) {
    f->fd = tt__fd(open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (f->leaving ? 0 : O_CREAT), 0600));
    if (f->fd < 0)
        return errno == ELOOP ? tt__fail(TT_ERR_IO, "the file is a symbolic link, which is not followed: give the path "
                                                    "that it leads to")
                              : fail_io("opening the file", errno);
    tt_status status = check_owner(f);
    if (status)
        close_file(f);
    return status;
}

static bool lock_presence(const file_store *f, short kind) {
    struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)1 << 62, .l_len = 1};
    return fcntl(f->fd, F_OFD_SETLK, &range) == 0;
}

/* ---- records */

static tt_status apply_record(file_store *f, tt__span key, tt__span value) {
    tt__store_table *table = &f->base.table;
    bool gone = key.size > 1 && key.data[0] == '-' && key.data[1] == '/';
    if (gone)
        key = (tt__span){key.data + 1, key.size - 1};
    if (key.size == strlen(CLEANUP_KEY) && !memcmp(key.data, CLEANUP_KEY, key.size)) {
        char number[24];
        snprintf(number, sizeof number, "%.*s", (int)(value.size < 20 ? value.size : 20), (const char *)value.data);
        f->finished = strtoll(number, NULL, 10);
        return TT_OK;
    }
    if (!key.size || key.data[0] != '/')
        return TT_OK;
    key = (tt__span){key.data + 1, key.size - 1};
    tt__store_entry *entry = gone ? tt__store_table_find(table, key) : tt__store_table_obtain(table, key);
    if (gone && entry)
        tt__store_entry_clear(table, entry);
    bool done = gone || (entry && tt__store_entry_assign(table, entry, value));
    if (entry)
        tt__store_table_settle(table, entry);
    return done ? TT_OK : tt__fail(TT_ERR_MEMORY, "out of memory");
}

/* Read a length and that many bytes at *at; false if they are not all there. */
static bool take_span(const tt__bytes *bytes, size_t *at, size_t max, tt__span *span, bool *bad) {
    if (bytes->size - *at < 4)
        return false;
    size_t size = (size_t)tt__store_number(bytes->data + *at, 4);
    *bad = size > max;
    if (*bad || bytes->size - *at - 4 < size)
        return false;
    *span = (tt__span){bytes->data + *at + 4, size};
    *at += 4 + size;
    return true;
}

/* Apply and consume the whole records in `bytes`. */
static tt_status apply_all(file_store *f, tt__bytes *bytes) {
    size_t done = 0, at = 0;
    bool bad = false;
    tt__span key, value;
    while (take_span(bytes, &at, TT_STORE_MAX_KEY + 1, &key, &bad) &&
           take_span(bytes, &at, TT_STORE_MAX_VALUE, &value, &bad)) {
        TT__TRY(apply_record(f, key, value));
        done = at;
    }
    f->known += (off_t)done;
    tt__bytes_consume(bytes, done);
    if (bad)
        return tt__fail(TT_ERR_PROTOCOL, "this is not a store's file: no record at byte %lld", (long long)f->known);
    return TT_OK;
}

/* Read the records after those that the table has. *torn: the last record is not whole. */
static tt_status catch_up(file_store *f, bool *torn) {
    tt__bytes bytes = {0};
    tt_status status = TT_OK;
    off_t at = f->known;
    struct stat info;
    *torn = false;
    if (!fstat(f->fd, &info) && info.st_size == at)
        return TT_OK;
    for (ssize_t n = 1; n && !status;) {
        if (!tt__bytes_reserve(&bytes, READ_SIZE)) {
            status = tt__fail(TT_ERR_MEMORY, "out of memory");
            break;
        }
        n = pread(f->fd, bytes.data + bytes.size, READ_SIZE, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = fail_io("reading the file", errno);
            break;
        }
        bytes.size += (size_t)n;
        at += n;
        status = n ? apply_all(f, &bytes) : TT_OK;
    }
    *torn = bytes.size > 0;
    tt__bytes_free(&bytes);
    return status;
}

static tt_status append_record(file_store *f, const tt__bytes *record) {
    off_t end = lseek(f->fd, 0, SEEK_END);
    for (size_t done = 0; end >= 0 && done < record->size;) {
        ssize_t n = tt__quiet_write(f->fd, record->data + done, record->size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int errnum = errno;
            (void)!ftruncate(f->fd, end);
            return fail_io("writing to the file", errnum);
        }
        done += (size_t)n;
    }
    return end < 0 ? fail_io("writing to the file", errno) : TT_OK;
}

static tt_status write_record(file_store *f, const char *front, tt__span key, tt__span value) {
    tt__bytes record = {0};
    size_t front_size = strlen(front);
    tt__store_put_u32(&record, (uint32_t)(front_size + key.size));
    tt__bytes_put(&record, front, front_size);
    tt__bytes_put(&record, key.data, key.size);
    tt__store_put_u32(&record, (uint32_t)value.size);
    tt__bytes_put(&record, value.data, value.size);
    tt_status status = record.failed ? tt__fail(TT_ERR_MEMORY, "out of memory") : append_record(f, &record);
    tt__bytes_free(&record);
    return status;
}

/* ---- opening and closing */

/* Check a file that was just opened and locked: only a store's records may be removed. */
static tt_status take_part(file_store *f) {
    bool torn;
    if (!f->fresh)
        return TT_OK;
    if (lock_presence(f, F_WRLCK)) {
        TT__TRY(catch_up(f, &torn));
        if (ftruncate(f->fd, 0))
            return fail_io("emptying the file", errno);
        forget_entries(f);
    }
    return lock_presence(f, F_RDLCK) ? TT_OK : fail_io("holding a lock in the file (F_OFD_SETLK)", errno);
}

/* Open and lock the file at `path`. */
static tt_status obtain_file(file_store *f, int kind, int64_t deadline_ms) {
    for (;;) {
        bool opened = f->fd < 0;
        if (opened)
            TT__TRY(open_file(f));
        tt_status status = lock_file(f, opened ? LOCK_EX : kind, deadline_ms);
        if (!status && is_still_there(f)) {
            if (opened)
                status = take_part(f);
            if (status)
                close_file(f);
            return status;
        }
        close_file(f);
        TT__TRY(status);
    }
}

static tt_status file_enter(file_store *f, bool write, int64_t deadline_ms) {
    bool torn = false;
    TT__TRY(tt__call_lock_take(&f->lock, deadline_ms));
    tt_status status = obtain_file(f, write ? LOCK_EX : LOCK_SH, deadline_ms);
    if (!status)
        status = catch_up(f, &torn);
    if (!status && torn && write && ftruncate(f->fd, f->known))
        status = fail_io("cutting off a torn record", errno);
    if (status) {
        if (f->fd >= 0)
            flock(f->fd, LOCK_UN);
        tt__call_lock_release(&f->lock);
    }
    return status;
}

static tt_status file_begin(tt__local_store *store, bool write, int64_t deadline_ms) {
    TT__TRY(file_enter(file_of(store), write, deadline_ms));
    file_of(store)->pause_ms = PAUSE_FIRST_MS;
    return TT_OK;
}

static void file_end(tt__local_store *store) {
    flock(file_of(store)->fd, LOCK_UN);
    tt__call_lock_release(&file_of(store)->lock);
}

static tt_status file_publish(tt__local_store *store, tt__span key, const tt__span *value) {
    return write_record(file_of(store), value ? "/" : "-/", key, value ? *value : (tt__span){0});
}

/* Wait for a change by polling the file, since no notification works on every file system. */
static tt_status file_wait(tt__local_store *store, int64_t deadline_ms) {
    file_store *f = file_of(store);
    long left = tt__left_ms(deadline_ms), pause_ms = f->pause_ms < left ? f->pause_ms : left;
    f->pause_ms = f->pause_ms * 2 < PAUSE_LAST_MS ? f->pause_ms * 2 : PAUSE_LAST_MS;
    file_end(store);
    tt__sleep_ms(pause_ms);
    return file_enter(f, false, tt__deadline_ms(left > GRACE_MS ? left : GRACE_MS)); /* leave time for the last look */
}

/* Count this user as finished; the last one removes the file. Errors don't matter: the file may be gone. */
static void count_finished(file_store *f) {
    char number[24];
    f->leaving = true;
    if (f->world_size <= 0 || f->fd < 0 || file_begin(&f->base, true, tt__deadline_ms(GRACE_MS)))
        return;
    int size = snprintf(number, sizeof number, "%lld", (long long)++f->finished);
    write_record(f, CLEANUP_KEY, (tt__span){0}, (tt__span){(const uint8_t *)number, (size_t)size});
    if (f->finished >= f->world_size)
        unlink(f->path);
    file_end(&f->base);
}

static void file_free(tt__local_store *store) {
    file_store *f = file_of(store);
    tt__saved_error saved;
    tt__error_save(&saved);
    count_finished(f);
    tt__error_restore(&saved);
    if (f->fd >= 0)
        close(f->fd);
    tt__call_lock_destroy(&f->lock);
    tt__local_store_fini(store);
    free(f->path);
    tt__quarantine(f, sizeof *f, free);
}

static const tt__medium file_medium = {
    .begin = file_begin, .end = file_end, .publish = file_publish, .wait = file_wait, .free = file_free};

static tt_status open_file_store(file_store *f, const tt_file_store_args *args) {
    size_t size = strlen(args->path) + 1;
    if (!(f->path = malloc(size)))
        return tt__fail(TT_ERR_MEMORY, "tt_file_store: out of memory");
    memcpy(f->path, args->path, size);
    char *leads_to;
    tt_status status = tt__follow_links(f->path, &leads_to); /* refuses strangers' links before the last name */
    free(leads_to);                                          /* open_file() refuses any link at the last name */
    if (!status)
        status = file_begin(&f->base, false, tt__deadline_ms(f->base.timeout_ms));
    if (status)
        return tt__fail_prefix("%s", f->base.name);
    f->world_size = args->world_size;
    file_end(&f->base);
    return TT_OK;
}

tt_status tt_file_store_with(const tt_file_store_args *given, size_t size) {
    tt_file_store_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_file_store: out is NULL");
    *args.out = NULL;
    if (!args.path || !*args.path)
        return tt__fail(TT_ERR_INVALID, "tt_file_store: expected a path, got none");
    if (args.world_size < 0 || args.timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID,
                        "tt_file_store: expected a world_size and timeout_ms of at least 0, got %d, %lld",
                        args.world_size, (long long)args.timeout_ms);
    file_store *f = calloc(1, sizeof *f);
    if (!f)
        return tt__fail(TT_ERR_MEMORY, "tt_file_store: out of memory");
    tt__local_store_init(&f->base, &file_medium, args.timeout_ms);
    snprintf(f->base.name, sizeof f->base.name, "file store %s", args.path);
    tt__call_lock_init(&f->lock);
    f->fd = -1;
    f->fresh = args.fresh;
    tt_status status = open_file_store(f, &args);
    if (status)
        file_free(&f->base);
    else
        *args.out = &f->base.base;
    return status;
}
