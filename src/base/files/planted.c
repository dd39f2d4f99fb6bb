#include "base/files/planted.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *tt__path_split(const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

const char *tt__kind_text(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISBLK(mode)  ? "a block device"
                            : "of an unknown kind";
}

bool tt__is_planted(const struct stat *found, const struct stat *around) {
    return (around->st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH) && found->st_uid != geteuid() &&
           found->st_uid != around->st_uid;
}

bool tt__others_may_write(const struct stat *folder) {
    return (folder->st_mode & S_IWOTH) ||
           ((folder->st_mode & S_IWGRP) && !tt__is_group_of_one(folder->st_gid, folder->st_uid));
}

/* ---- links ---- */

/* May a link be followed? In a folder that others may write to, the last link of a path must be this user's or root's;
 * a link before it may also be the folder's owner's, by the same rule as the kernel's protected_symlinks. */
static bool may_follow_link(const struct stat *link, const struct stat *around, bool is_last) {
    if (link->st_uid == geteuid() || link->st_uid == 0 || (!is_last && link->st_uid == around->st_uid))
        return true;
    return !tt__others_may_write(around);
}

/* Look at `path`, in the folder `at`: is it a symbolic link, whose text goes to `to` (PATH_MAX), and is anything there?
 * A planted link is refused: it could lead root anywhere. The kernel's protected_symlinks can't be relied on: it may be
 * off, it ignores folders that a group may write to, and readlink() is not subject to it. */
static tt_status read_link(const char *path, const char *at, bool is_last, char *to, bool *is_link, bool *there) {
    struct stat link, around;
    *is_link = false;
    int fd = tt__fd(open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    *there = fd >= 0;
    if (fd < 0 && errno == ENOENT)
        return TT_OK;
    bool good = fd >= 0 && fstat(fd, &link) == 0 && (!S_ISLNK(link.st_mode) || stat(at, &around) == 0);
    ssize_t n = good && S_ISLNK(link.st_mode) ? readlinkat(fd, "", to, PATH_MAX - 1) : 0;
    int errnum = errno;
    if (fd >= 0)
        close(fd);
    if (!good || n < 0)
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't find what it leads to", path);
    if (!S_ISLNK(link.st_mode))
        return TT_OK;
    if (!may_follow_link(&link, &around, is_last))
        return tt__fail(TT_ERR_IO, "%s: another user's symbolic link in a directory that others may write to", path);
    to[n] = '\0';
    *is_link = true;
    return TT_OK;
}

/* A path that is being followed: `at` has no links, `rest` has not been looked at. */
typedef struct way {
    char at[PATH_MAX], rest[2 * PATH_MAX];
    char name[PATH_MAX], next[2 * PATH_MAX], to[PATH_MAX], after[2 * PATH_MAX]; /* scratch, for one name */
    bool ends_in_link;                                                          /* the path's last name was a link */
    int links;
} way;

/* Take the next name off the rest; "": none is left. */
static void take_name(way *w) {
    char *begin = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(begin, "/");
    snprintf(w->name, sizeof w->name, "%.*s", (int)n, begin);
    memmove(w->rest, begin + n, strlen(begin + n) + 1);
}

/* Follow one name; *more: names may be left. */
static tt_status follow_name(way *w, const char *path, bool *more) {
    enum { MOST = 40 }; /* as many as Linux follows */
    bool is_link, there;
    take_name(w);
    *more = *w->name != '\0';
    if (!*more || !strcmp(w->name, "."))
        return TT_OK;
    int n = snprintf(w->next, sizeof w->next, "%s%s%s", w->at, *w->at && strcmp(w->at, "/") != 0 ? "/" : "", w->name);
    if (n >= PATH_MAX)
        return tt__fail_errno(TT_ERR_IO, ENAMETOOLONG, "%s: can't find what it leads to", path);
    bool is_last = !w->rest[strspn(w->rest, "/")];
    TT__TRY(read_link(w->next, *w->at ? w->at : ".", is_last, w->to, &is_link, &there));
    if (!is_link) {
        memcpy(w->at, w->next, (size_t)n + 1);
        *more = there;
        return TT_OK;
    }
    w->ends_in_link = w->ends_in_link || is_last;
    if (++w->links > MOST)
        return tt__fail_errno(TT_ERR_IO, ELOOP, "%s: can't find what it leads to", path);
    n = snprintf(w->after, sizeof w->after, "%s/%s", w->to, w->rest);
    if (n >= (int)sizeof w->after)
        return tt__fail_errno(TT_ERR_IO, ENAMETOOLONG, "%s: can't find what it leads to", path);
    memcpy(w->rest, w->after, (size_t)n + 1);
    if (*w->to == '/')
        memcpy(w->at, "/", 2);
    return TT_OK;
}

tt_status tt__follow_links(const char *path, char **out) {
    way *w = calloc(1, sizeof *w);
    bool more = true;
    tt_status status = TT_OK;
    *out = NULL;
    if (!w)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    if (strlen(path) >= sizeof w->rest / 2)
        status = tt__fail_errno(TT_ERR_IO, ENAMETOOLONG, "%.200s: can't find what it leads to", path);
    else
        snprintf(w->rest, sizeof w->rest, "%s", path);
    if (*path == '/')
        memcpy(w->at, "/", 2);
    while (!status && more)
        status = follow_name(w, path, &more);
    if (!status && w->ends_in_link) {
        const char *rest = w->rest + strspn(w->rest, "/");
        if (asprintf(out, "%s%s%s", w->at, *rest ? "/" : "", rest) < 0)
            *out = NULL;
    } else if (!status) {
        *out = strdup(path);
    }
    if (!status && !*out)
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    free(w);
    return status;
}

/* Check that a folder that is there is no stranger's link. */
static tt_status check_folder_link(const char *path) {
    char *leads_to = NULL, *bare = strdup(path);
    if (!bare)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = '\0'; /* a final "/" would make the kernel follow the link before we see it */
    tt_status status = tt__follow_links(bare, &leads_to);
    free(leads_to);
    free(bare);
    return status;
}

tt_status tt__make_folder(const char *path, bool *made) {
    bool new = mkdir(path, 0777) == 0;
    if (made)
        *made = new;
    if (new)
        return TT_OK;
    return errno == EEXIST ? check_folder_link(path)
                           : tt__fail_errno(TT_ERR_IO, errno, "can't make the folder %s", path);
}

tt_status tt__make_folders(const char *path) {
    char *part = strdup(path);
    if (!part)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    tt_status status = TT_OK;
    for (char *slash = part; slash && !status;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        status = tt__make_folder(part, NULL);
        if (slash)
            *slash = '/';
    }
    free(part);
    return status;
}

int tt__open_to_append(const char *path, bool only_new) {
    int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, fd = -1;
    /* Not with O_CREAT alone: the kernel's protected_regular and protected_fifos would refuse files that the caller's
     * checks can name in their error. */
    for (int tries = 0; fd < 0 && tries < 100; tries++) {
        fd = only_new ? -1 : tt__fd(open(path, flags));
        if (fd < 0 && (only_new || errno == ENOENT))
            fd = tt__fd(open(path, flags | O_CREAT | O_EXCL, 0666));
        if (fd < 0 && (only_new || errno != EEXIST))
            return -1;
    }
    return fd;
}

tt_status tt__check_writable(int fd, const char *path) {
    struct stat found, around;
    if (fstat(fd, &found))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't tell what it is", path);
    if (S_ISCHR(found.st_mode))
        return TT_OK;
    if (!S_ISREG(found.st_mode))
        return tt__fail(TT_ERR_INVALID, "%s: expected a file, got %s", path, tt__kind_text(found.st_mode));
    const char *name;
    char *folder = tt__path_split(path, &name);
    bool known = folder && stat(folder, &around) == 0;
    int errnum = errno;
    free(folder);
    if (!known)
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't look at its folder", path);
    if (tt__is_planted(&found, &around))
        return tt__fail(TT_ERR_IO, "%s: another user's file in a directory that all may write to; choose another path",
                        path);
    if (found.st_nlink > 1 && tt__others_may_write(&around))
        return tt__fail(TT_ERR_IO,
                        "%s: this file has several names (hard links), in a directory that others may write to; choose "
                        "another path",
                        path);
    return TT_OK;
}

tt_status tt__check_taken(int fd, const char *path) {
    struct stat found, around;
    const char *name;
    char *folder = tt__path_split(path, &name);
    bool known = folder && !fstat(fd, &found) && !stat(folder, &around);
    int errnum = errno;
    free(folder);
    if (!known)
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't look at it", path);
    if (!S_ISREG(found.st_mode))
        return tt__fail(TT_ERR_IO, "%s: expected a regular file", path);
    bool trusted = found.st_uid == geteuid() || found.st_uid == 0;
    if (!trusted && (found.st_uid != around.st_uid || tt__others_may_write(&around)))
        return tt__fail(TT_ERR_IO, "%s: another user's file, who can change it at any time; choose another folder",
                        path);
    return TT_OK;
}

tt_status tt__check_folder(const char *path) {
    const char *name;
    struct stat found, around;
    bool planted = false;
    char *at = strdup(path);
    while (at && !planted && strcmp(at, "/") != 0) {
        char *parent = tt__path_split(at, &name);
        planted = !parent || stat(at, &found) || stat(parent, &around) || tt__is_planted(&found, &around);
        free(at);
        at = parent;
    }
    planted = planted || !at;
    free(at);
    return planted ? tt__fail(TT_ERR_IO,
                              "%.400s: another user's folder, or below one, in a directory that all may write to", path)
                   : TT_OK;
}

tt_status tt__open_regular(int *fd, const char *path) {
    struct stat info;
    *fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (*fd >= 0 && fstat(*fd, &info) == 0 && S_ISREG(info.st_mode))
        return TT_OK;
    tt_status status = *fd < 0 ? tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", path)
                               : tt__fail(TT_ERR_IO, "%s: expected a file, got %s", path, tt__kind_text(info.st_mode));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return status;
}

tt_status tt__check_regular(const char *path) {
    struct stat info;
    return stat(path, &info) || S_ISREG(info.st_mode)
               ? TT_OK
               : tt__fail(TT_ERR_IO, "%s: expected a file, got %s", path, tt__kind_text(info.st_mode));
}
