#include "base/atomic_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Split `path` into its directory (the caller's to free) and its last name. */
static char *directory_of(const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

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
    int fd = openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(directory, entry, 0) == 0)
        tt__log(TT_LOG_INFO, "removed %s, left behind by a writer that ended", entry);
    close(fd);
}

/* Remove stale temporaries, as far as possible: what can't be read or removed keeps nobody from writing. */
static void remove_stale(const char *directory, const char *name) {
    DIR *entries = opendir(directory);
    if (!entries)
        return;
    for (struct dirent *e; (e = readdir(entries));)
        if (is_temporary_of(e->d_name, name))
            remove_if_stale(dirfd(entries), e->d_name);
    closedir(entries);
}

/* Create the temporary and lock it; again if another writer took it for stale in between. On file systems without
 * locks nothing is ever removed. */
static tt_status create_temporary(tt__atomic_file *file) {
    size_t size = strlen(file->path) + 48;
    file->temporary = malloc(size);
    if (!file->temporary)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its temporary's name", file->path);
    for (unsigned n = 0;; n++) {
        snprintf(file->temporary, size, "%s.tmp-%ld-%u", file->path, (long)getpid(), n);
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno == EEXIST)
            continue;
        if (file->fd < 0)
            return tt__fail_errno(TT_ERR_IO, errno, "%s: can't create it", file->temporary);
        struct stat s;
        bool locked = flock(file->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (locked && fstat(file->fd, &s) == 0 && s.st_nlink > 0)
            return TT_OK;
        close(file->fd);
    }
}

static void release_file(tt__atomic_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    free(file->temporary);
    free(file->path);
    *file = (tt__atomic_file){.fd = -1};
}

tt_status tt__atomic_open(tt__atomic_file *file, const char *path) {
    *file = (tt__atomic_file){.fd = -1};
    if (!path || !*path)
        return tt__fail(TT_ERR_INVALID, "expected a file name, got %s", path ? "an empty one" : "NULL");
    const char *name;
    char *directory = directory_of(path, &name);
    file->path = strdup(path);
    tt_status status;
    if (!directory || !file->path) {
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    } else if (!*name) {
        status = tt__fail(TT_ERR_INVALID, "%s: expected a file, got a directory", path);
    } else {
        remove_stale(directory, name);
        status = create_temporary(file);
    }
    if (status)
        release_file(file);
    free(directory);
    return status;
}

tt_status tt__atomic_write(tt__atomic_file *file, const void *data, size_t size) {
    const char *from = data;
    while (size > 0) {
        ssize_t n = write(file->fd, from, size < (size_t)1 << 30 ? size : (size_t)1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tt__fail_errno(TT_ERR_IO, errno, "%s: writing failed", file->path);
        from += n;
        size -= (size_t)n;
    }
    return TT_OK;
}

/* Sync the directory. File systems that can't say EINVAL; a rename is all they offer. */
static tt_status sync_directory(const char *path) {
    const char *name;
    char *directory = directory_of(path, &name);
    if (!directory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its directory's name", path);
    tt_status status = TT_OK;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not sync its directory", path);
    if (fd >= 0)
        close(fd);
    free(directory);
    return status;
}

tt_status tt__atomic_commit(tt__atomic_file *file) {
    tt_status status = TT_OK;
    if (fsync(file->fd) != 0)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not sync %s", file->path, file->temporary);
    else if (rename(file->temporary, file->path) != 0)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: could not put %s in its place", file->path, file->temporary);
    if (status)
        unlink(file->temporary);
    else
        status = sync_directory(file->path);
    release_file(file);
    return status;
}

void tt__atomic_abort(tt__atomic_file *file) {
    if (!file->temporary)
        return;
    unlink(file->temporary);
    release_file(file);
}
