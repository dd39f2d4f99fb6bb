#include "base/files/atomic_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/planted.h"
#include "base/process/waits.h"

/* Is `entry` "NAME.tmp-DIGITS-DIGITS"? */
static bool is_temporary_of(const char *entry, const char *name) {
    size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0 || strncmp(entry + length, ".tmp-", 5) != 0)
        return false;
    const char *c = entry + length + 5;
    for (int part = 0; part < 2; part++) {
        if (!isdigit((unsigned char)*c))
            return false;
        while (isdigit((unsigned char)*c))
            c++;
        if (part == 0 && *c++ != '-')
            return false;
    }
    return *c == '\0';
}

/* Remove `entry` if nobody holds its lock. */
static void remove_if_stale(int directory, const char *entry) {
    int fd = tt__fd(openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(directory, entry, 0) == 0)
        tt__log(TT_LOG_INFO, "removed %s, left behind by a writer that ended", entry);
    close(fd);
}

/* Remove the stale temporaries that can be read and removed; others don't prevent writing. */
static void remove_stale(const char *directory, const char *name) {
    DIR *entries = opendir(directory);
    if (!entries)
        return;
    for (struct dirent *e; (e = readdir(entries));)
        if (is_temporary_of(e->d_name, name))
            remove_if_stale(dirfd(entries), e->d_name);
    closedir(entries);
}

/* ---- the temporaries of this process ---- */

/* Their names, for tt__atomic_remove_temporaries(). No lock guards them, because a forked child could find it taken.
 * Further temporaries are left behind if a signal ends the process. */
static _Atomic(char *) temporaries[64];

/* How many threads are making a temporary that is not noted yet. */
static atomic_int making;

enum { MAKING_MS = 1000 };

static void note_temporary(char *temporary) {
    for (size_t i = 0; i < sizeof temporaries / sizeof *temporaries; i++) {
        char *nobody = NULL;
        if (atomic_compare_exchange_strong(&temporaries[i], &nobody, temporary))
            return;
    }
}

static void forget_temporary(char *temporary) {
    for (size_t i = 0; temporary && i < sizeof temporaries / sizeof *temporaries; i++) {
        char *mine = temporary;
        if (atomic_compare_exchange_strong(&temporaries[i], &mine, NULL))
            return;
    }
}

void tt__atomic_remove_temporaries(void) {
    for (int ms = 0; making && ms < MAKING_MS; ms++)
        tt__sleep_ms(1);
    for (size_t i = 0; i < sizeof temporaries / sizeof *temporaries; i++) {
        const char *temporary = atomic_exchange(&temporaries[i], NULL);
        if (temporary)
            unlink(temporary);
    }
}

/* ---- opening ---- */

/* Create the temporary, lock it and note it; again if another writer, which found it unlocked, has removed it. On file
 * systems without locks stale temporaries stay. */
static tt_status create_noted(tt__atomic_file *file, mode_t mode) {
    size_t size = strlen(file->path) + 48;
    file->temporary = malloc(size);
    if (!file->temporary)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its temporary's name", file->path);
    for (unsigned n = 0;; n++) {
        snprintf(file->temporary, size, "%s.tmp-%ld-%u", file->path, (long)getpid(), n);
        file->fd = tt__fd(open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
        if (file->fd < 0 && errno == EEXIST)
            continue;
        if (file->fd < 0)
            return tt__fail_errno(TT_ERR_IO, errno, "%s: can't create it", file->temporary);
        struct stat s;
        bool locked = flock(file->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && fstat(file->fd, &s) == 0 && s.st_nlink > 0) {
            note_temporary(file->temporary);
            return TT_OK;
        }
        close(file->fd);
    }
}

static tt_status create_temporary(tt__atomic_file *file, mode_t mode) {
    making++;
    tt_status status = create_noted(file, mode);
    making--;
    return status;
}

static void release_file(tt__atomic_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    forget_temporary(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (tt__atomic_file){.fd = -1};
}

/* Refuse to replace another user's file in a sticky directory: there the kernel lets only the owner do that, which
 * rename() would find out at the end; and root would hand the new file to a stranger. */
static tt_status check_replaceable(const tt__atomic_file *file, const char *folder, const struct stat *old) {
    struct stat around;
    if (stat(folder, &around) || !(around.st_mode & S_ISVTX) || old->st_uid == geteuid())
        return TT_OK;
    bool may_replace = geteuid() == 0 || around.st_uid == geteuid();
    return may_replace && !tt__is_planted(old, &around)
               ? TT_OK
               : tt__fail(TT_ERR_IO,
                          "%s: another user's file, in a directory where only its owner may replace it (sticky); "
                          "choose another path",
                          file->path);
}

/* Give the temporary the mode and, as far as this process may, the owner of the file that it replaces. */
static tt_status keep_mode(tt__atomic_file *file, const struct stat *old) {
    struct stat made;
    bool same = fstat(file->fd, &made) == 0 && made.st_uid == old->st_uid && made.st_gid == old->st_gid;
    mode_t mode = old->st_mode & 0777;
    if (!same && fchown(file->fd, old->st_uid, old->st_gid) != 0 && fchown(file->fd, (uid_t)-1, old->st_gid) != 0)
        mode &= ~(mode_t)0070; /* another group */
    return fchmod(file->fd, mode) == 0
               ? TT_OK
               : tt__fail_errno(TT_ERR_IO, errno, "%s: can't give %s its mode", file->path, file->temporary);
}

/* Is the file another user's, who could have put it there so that the new file becomes his, or open to all? */
static bool is_of_others(const char *folder, const struct stat *old) {
    struct stat around;
    return old->st_uid != geteuid() && old->st_uid != 0 && !stat(folder, &around) && tt__others_may_write(&around);
}

/* Take from the temporary, which has the mode of any new file, the permissions that the old file lacks. */
static tt_status lower_mode(tt__atomic_file *file, const struct stat *old) {
    struct stat made;
    return !fstat(file->fd, &made) && !fchmod(file->fd, made.st_mode & (0600 | (old->st_mode & 0777)))
               ? TT_OK
               : tt__fail_errno(TT_ERR_IO, errno, "%s: can't give %s its mode", file->path, file->temporary);
}

/* Does this process's standard output or error go to this file? What is printed would be lost if it were replaced. */
static bool is_standard_stream(const struct stat *file) {
    struct stat stream;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &stream) == 0 && stream.st_dev == file->st_dev && stream.st_ino == file->st_ino)
            return true;
    return false;
}

/* Open the temporary of a regular file; old NULL: of a file that doesn't exist. */
static tt_status open_beside(tt__atomic_file *file, const struct stat *old) {
    const char *name;
    char *directory = tt__path_split(file->path, &name);
    if (!directory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", file->path);
    tt_status status;
    if (!*name) {
        status = tt__fail(TT_ERR_INVALID, "%s: expected a file, got a directory", file->path);
    } else if (!(status = old ? check_replaceable(file, directory, old) : TT_OK)) {
        bool lowers = old && is_of_others(directory, old);
        remove_stale(directory, name);
        status = create_temporary(file, old && !lowers ? 0600 : 0666);
        if (!status && old && (status = lowers ? lower_mode(file, old) : keep_mode(file, old)))
            unlink(file->temporary);
    }
    free(directory);
    return status;
}

/* Open a device, such as /dev/null or a terminal, which is written to and stays. */
static tt_status open_device(tt__atomic_file *file) {
    struct stat opened;
    file->fd = tt__fd(open(file->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (file->fd < 0 || fstat(file->fd, &opened))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", file->path);
    if (!S_ISCHR(opened.st_mode)) /* it has just been replaced */
        return tt__fail(TT_ERR_INVALID, "%s: expected a file, got %s", file->path, tt__kind_text(opened.st_mode));
    return fcntl(file->fd, F_SETFL, O_WRONLY) ? tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", file->path)
                                              : TT_OK;
}

/* Look at what `path` leads to now; *exists false: nothing. */
static tt_status look_at_old(const char *path, struct stat *old, bool *exists) {
    *exists = stat(path, old) == 0;
    return *exists || errno == ENOENT ? TT_OK : tt__fail_errno(TT_ERR_IO, errno, "%s", path);
}

/* Find the path that links lead to, and the file there. A link of /proc may lead to a file that has lost its name: then
 * the path that the link shows has another file, or none, and the file can't be replaced. Where another process is
 * replacing the file, both differ for a moment, too, hence several looks. */
static tt_status find_written(const char *path, char **target, struct stat *old, bool *exists) {
    enum { LOOKS = 100 };
    struct stat found;
    TT__TRY(look_at_old(path, old, exists));
    TT__TRY(tt__follow_links(path, target));
    for (int i = 0; i < LOOKS; i++) {
        if (!*exists || (!stat(*target, &found) && found.st_ino == old->st_ino && found.st_dev == old->st_dev))
            return TT_OK;
        TT__TRY(look_at_old(path, old, exists));
    }
    return tt__fail(TT_ERR_INVALID, "%s: expected a file that has a name", *target);
}

/* Refuse what can't be replaced, and this process's own output. */
static tt_status check_replaced(const char *path, const struct stat *old, bool exists) {
    if (exists && !S_ISREG(old->st_mode) && !S_ISCHR(old->st_mode))
        return tt__fail(TT_ERR_INVALID, "%s: expected a file, got %s", path, tt__kind_text(old->st_mode));
    if (exists && S_ISREG(old->st_mode) && is_standard_stream(old))
        return tt__fail(TT_ERR_INVALID, "%s: this process's own output goes to that file; choose another path", path);
    return TT_OK;
}

tt_status tt__atomic_open(tt__atomic_file *file, const char *path) {
    struct stat old;
    bool exists;
    *file = (tt__atomic_file){.fd = -1};
    if (!path || !*path)
        return tt__fail(TT_ERR_INVALID, "expected a file name, got %s", path ? "an empty one" : "NULL");
    tt_status status = find_written(path, &file->path, &old, &exists);
    if (!status)
        status = check_replaced(path, &old, exists);
    if (!status)
        status = exists && S_ISCHR(old.st_mode) ? open_device(file) : open_beside(file, exists ? &old : NULL);
    if (status)
        release_file(file);
    return status;
}

tt_status tt__atomic_check(const char *path) {
    tt__atomic_file file;
    TT__TRY(tt__atomic_open(&file, path));
    tt__atomic_abort(&file);
    return TT_OK;
}

tt_status tt__atomic_write(tt__atomic_file *file, const void *data, size_t size) {
    const char *from = data;
    struct rlimit most; /* the kernel would kill the process */
    if (file->temporary && !getrlimit(RLIMIT_FSIZE, &most) &&
        (file->size > most.rlim_cur || size > most.rlim_cur - file->size))
        return tt__fail(TT_ERR_IO, "%s: writing failed: the limit on a file's size (ulimit -f) is %llu bytes",
                        file->path, (unsigned long long)most.rlim_cur);
    while (size > 0) {
        ssize_t n = write(file->fd, from, size < (size_t)1 << 30 ? size : (size_t)1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tt__fail_errno(TT_ERR_IO, errno, "%s: writing failed", file->path);
        from += n;
        size -= (size_t)n;
        file->size += (uint64_t)n;
    }
    return TT_OK;
}

/* Sync the directory. File systems that can't do this return EINVAL; there the rename must suffice. */
static tt_status sync_directory(const char *path) {
    const char *name;
    char *directory = tt__path_split(path, &name);
    if (!directory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its directory's name", path);
    tt_status status = TT_OK;
    int fd = tt__fd(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not sync its directory", path);
    if (fd >= 0)
        close(fd);
    free(directory);
    return status;
}

/* Sync what was written to a device, if it can be synced. */
static tt_status commit_device(const tt__atomic_file *file) {
    bool failed = fsync(file->fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP;
    return failed ? tt__fail_errno(TT_ERR_IO, errno, "%s: could not sync it", file->path) : TT_OK;
}

static tt_status commit_temporary(const tt__atomic_file *file) {
    tt_status status = TT_OK;
    if (fsync(file->fd) != 0)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not sync %s", file->path, file->temporary);
    else if (rename(file->temporary, file->path) != 0)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not put %s in its place", file->path, file->temporary);
    if (!status)
        return sync_directory(file->path);
    unlink(file->temporary);
    return status;
}

tt_status tt__atomic_commit(tt__atomic_file *file) {
    tt_status status = file->temporary ? commit_temporary(file) : commit_device(file);
    release_file(file);
    return status;
}

void tt__atomic_abort(tt__atomic_file *file) {
    if (file->temporary)
        unlink(file->temporary);
    if (file->path)
        release_file(file);
}
