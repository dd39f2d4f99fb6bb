#include "elastic/logs.h"

#include "base/error.h"
#include "base/fd.h"
#include "base/planted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Write the run's id as a part of a file's name: no slash, no control character, not hidden, not too long. */
static void make_name(char *name, size_t size, const char *run_id) {
    snprintf(name, size, "%s", run_id);
    for (char *c = name; *c; c++)
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 127)
            *c = '_';
    if (*name == '.')
        *name = '_';
}

/* Make a new folder "parent/name_random", for this user alone; allocated. */
static tt_status make_unique(char **out, const char *parent, const char *name) {
    if (asprintf(out, "%s/%s_XXXXXX", parent, name) < 0) {
        *out = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name of a folder");
    }
    if (mkdtemp(*out))
        return TT_OK;
    int errnum = errno;
    free(*out);
    *out = NULL;
    return tt__fail_errno(TT_ERR_IO, errnum, "can't make a folder for logs in %.400s", parent);
}

/* In a folder that a stranger has put where all may write, or below one, he could put links in the place of ours.
 * `path` is absolute and has no links. */
static tt_status check_not_planted(const char *path) {
    const char *name;
    struct stat found, around;
    bool planted = false;
    char *at = strdup(path);
    while (at && !planted && strcmp(at, "/") != 0) {
        char *parent = tt__path_split(at, &name);
        if (parent && strlen(parent) > 1 && parent[strlen(parent) - 1] == '/')
            parent[strlen(parent) - 1] = '\0';
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

tt_status tt__logs_make(tt__logs *logs, const char *base, const char *run_id) {
    char name[128], *made = NULL, *whole = NULL;
    const char *temporary = secure_getenv("TMPDIR");
    make_name(name, sizeof name, run_id);
    if (base)
        TT__TRY(tt__make_folders(base));
    else
        TT__TRY(make_unique(&made, temporary && *temporary ? temporary : "/tmp", "torchelastic"));
    whole = realpath(made ? made : base, NULL); /* workers may change their directory */
    tt_status status = whole ? check_not_planted(whole)
                             : tt__fail_errno(TT_ERR_IO, errno, "can't find the folder %.400s", made ? made : base);
    if (!status)
        status = make_unique(&logs->dir, whole, name);
    free(whole);
    free(made);
    return status;
}

const char *tt__logs_path(const tt__logs *logs, int attempt, int i, const char *file, char path[PATH_MAX]) {
    char worker[16] = "";
    if (i >= 0)
        snprintf(worker, sizeof worker, "/%d", i);
    snprintf(path, PATH_MAX, "%s/attempt_%d%s%s%s", logs->dir, attempt, worker, *file ? "/" : "", file);
    return path;
}

const char *tt__logs_file(int std) { return std == TT__STDOUT ? "stdout.log" : "stderr.log"; }

/* Is it a folder, and not a link that workers of an earlier attempt have put there? */
static bool is_folder(const char *path) {
    struct stat info;
    bool good = lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    errno = good ? errno : ENOTDIR;
    return good;
}

bool tt__logs_make_folder(const tt__logs *logs, int attempt, int i) {
    char path[PATH_MAX];
    if (mkdir(tt__logs_path(logs, attempt, -1, "", path), 0777) && errno != EEXIST)
        return false;
    return is_folder(path) && (mkdir(tt__logs_path(logs, attempt, i, "", path), 0777) == 0 || errno == EEXIST) &&
           is_folder(path);
}

int tt__logs_append(const char *path) {
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    int fd = tt__fd(open(path, flags, 0666));
    struct stat info;
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && fcntl(fd, F_SETFL, O_APPEND) == 0)
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

int tt__logs_open(const tt__logs *logs, int attempt, int i, int std) {
    char path[PATH_MAX];
    if (!tt__logs_make_folder(logs, attempt, i))
        return -1;
    return tt__logs_append(tt__logs_path(logs, attempt, i, tt__logs_file(std), path));
}
