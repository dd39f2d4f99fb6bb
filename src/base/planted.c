#include "base/planted.h"

#include "base/error.h"
#include "base/fd.h"

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

/* Read a symbolic link's text to `to` (PATH_MAX); *is_link: there is one. A planted one is refused: it could lead root
 * anywhere. The kernel's protected_symlinks, which would see to that, may be off, and doesn't look where readlink()
 * does. */
static tt_status read_link(const char *path, const char *folder, char *to, bool *is_link) {
    struct stat link, around;
    *is_link = false;
    int fd = tt__fd(open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0 && errno == ENOENT)
        return TT_OK;
    bool good = fd >= 0 && fstat(fd, &link) == 0 && stat(folder, &around) == 0;
    ssize_t n = good && S_ISLNK(link.st_mode) ? readlinkat(fd, "", to, PATH_MAX - 1) : 0;
    int errnum = errno;
    if (fd >= 0)
        close(fd);
    if (!good || n < 0)
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't find what it leads to", path);
    if (!S_ISLNK(link.st_mode))
        return TT_OK;
    if ((around.st_mode & S_IWOTH) && link.st_uid != geteuid() && link.st_uid != around.st_uid)
        return tt__fail(TT_ERR_IO, "%s: another user's symbolic link in a directory that all may write to", path);
    to[n] = '\0';
    *is_link = true;
    return TT_OK;
}

tt_status tt__follow_links(const char *path, char **out) {
    enum { MOST = 40 }; /* as many as Linux follows */
    char to[PATH_MAX], *at = strdup(path);
    tt_status status = TT_OK;
    bool is_link = at != NULL;
    for (int i = 0; is_link && !status; i++) {
        const char *name;
        char *folder = tt__path_split(at, &name), *next = NULL;
        if (!folder)
            break;
        status = read_link(at, folder, to, &is_link);
        if (!status && is_link && i == MOST)
            status = tt__fail_errno(TT_ERR_IO, ELOOP, "%s: can't find what it leads to", path);
        if (!status && is_link) {
            if (asprintf(&next, "%s%s%s", *to == '/' ? "" : folder, *to == '/' ? "" : "/", to) < 0)
                next = NULL;
            free(at);
            at = next;
        }
        free(folder);
        is_link = is_link && at;
    }
    if (!status && (!at || is_link))
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    if (status) {
        free(at);
        at = NULL;
    }
    *out = at;
    return status;
}

/* The folder is there: is it a stranger's link? */
static tt_status check_folder_link(const char *path) {
    char *leads_to = NULL, *bare = strdup(path);
    if (!bare)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its name", path);
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = '\0'; /* with it the kernel would follow the link before we see it */
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
    /* With O_CREAT alone the kernel's protected_regular and protected_fifos would refuse what the caller can name. */
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
    if (found.st_nlink > 1 && (around.st_mode & S_IWOTH))
        return tt__fail(TT_ERR_IO,
                        "%s: this file has several names (hard links), in a directory that all may write to; choose "
                        "another path",
                        path);
    return TT_OK;
}
