#include "launch/local/logs.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/planted.h"
#include "launch/polling.h"

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

tt_status tt__logs_make(tt__logs *logs, const char *base, const char *run_id) {
    char name[128], *made = NULL, *whole = NULL;
    struct stat info;
    const char *temporary = secure_getenv("TMPDIR");
    make_name(name, sizeof name, run_id);
    if (base)
        TT__TRY(tt__make_folders(base));
    else
        TT__TRY(make_unique(&made, temporary && *temporary ? temporary : "/tmp", "torchelastic"));
    whole = realpath(made ? made : base, NULL); /* workers may change their directory */
    tt_status status = whole ? tt__check_folder(whole)
                             : tt__fail_errno(TT_ERR_IO, errno, "can't find the folder %.400s", made ? made : base);
    if (!status)
        status = make_unique(&logs->dir, whole, name);
    if (!status)
        logs->owner = stat(logs->dir, &info) ? geteuid() : info.st_uid; /* root's may belong to nobody (NFS) */
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

/* Open folder `name` in folder `in`, which is closed; `make` it if it is missing. Links are refused, as others or
 * earlier workers may have put them there, and folders of another owner than the run's. -1: errno says why. */
static int enter_folder(const tt__logs *logs, int in, const char *name, bool make) {
    struct stat info;
    bool there = in >= 0 && (!make || mkdirat(in, name, 0777) == 0 || errno == EEXIST);
    int fd = there ? tt__fd(openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) : -1, errnum = errno;
    if (fd >= 0 && (fstat(fd, &info) || info.st_uid != logs->owner)) {
        close(fd);
        fd = -1;
        errnum = EPERM;
    }
    tt__close_fd(&in);
    errno = errnum;
    return fd;
}

/* Open the folder of worker `i` (-1: of the attempt). Each name is looked up in the folder opened before it: others who
 * may write to the folder that the user named can exchange ours at any time. */
static int open_folder(const tt__logs *logs, int attempt, int i, bool make) {
    char name[32];
    struct stat info;
    int fd = tt__fd(open(logs->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && (fstat(fd, &info) || info.st_uid != logs->owner)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    snprintf(name, sizeof name, "attempt_%d", attempt);
    fd = enter_folder(logs, fd, name, make);
    snprintf(name, sizeof name, "%d", i);
    return i < 0 ? fd : enter_folder(logs, fd, name, make);
}

bool tt__logs_make_folder(const tt__logs *logs, int attempt, int i) {
    int fd = open_folder(logs, attempt, i, true);
    bool there = fd >= 0;
    tt__close_fd(&fd);
    return there;
}

/* Open a file in `folder`, which is closed. */
static int open_in_folder(int folder, const char *file, int flags) {
    int fd = folder < 0 ? -1 : tt__fd(openat(folder, file, flags, 0666)), errnum = errno;
    tt__close_fd(&folder);
    errno = errnum;
    return fd;
}

int tt__logs_append(const tt__logs *logs, int attempt, int i, const char *file) {
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
    struct stat info;
    int fd = open_in_folder(open_folder(logs, attempt, i, true), file, flags);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && fcntl(fd, F_SETFL, O_APPEND) == 0)
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

int tt__logs_open(const tt__logs *logs, int attempt, int i, const char *file) {
    return open_in_folder(open_folder(logs, attempt, i, false), file,
                          O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

void tt__logs_remove(const tt__logs *logs, int attempt, int i, const char *file) {
    int folder = open_folder(logs, attempt, i, false);
    if (folder >= 0)
        unlinkat(folder, file, 0);
    tt__close_fd(&folder);
}
