/* The private directory where workers leave their error reports (TORCHELASTIC_ERROR_FILE). */
#include "launch/job.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "net/secure/secret.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Return where temporary files go: TMPDIR, else /tmp. */
static const char *parent_folder(void) {
    const char *parent = secure_getenv("TMPDIR");
    return parent && *parent ? parent : "/tmp";
}

tt_status tt__job_error_dir_name(tt__job *job) {
    uint64_t number;
    TT__TRY(tt__random_bytes(&number, sizeof number));
    int n = snprintf(job->error_dir, sizeof job->error_dir, "%s/tutti-%016llx", parent_folder(),
                     (unsigned long long)number);
    return n > 0 && (size_t)n < sizeof job->error_dir ? TT_OK : tt__job_error_dir_failed(ENAMETOOLONG);
}

static int open_error_dir(const tt__job *job) {
    return tt__fd(open(job->error_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* Is nothing in the folder? `fd` is taken over. */
static bool is_empty_folder(int fd) {
    DIR *dir = fdopendir(fd);
    int entries = 0;
    if (!dir)
        close(fd);
    while (dir && entries <= 2 && readdir(dir)) /* "." and ".." */
        entries++;
    if (dir)
        closedir(dir);
    return dir && entries <= 2;
}

static tt__folder_id folder_id_of(const struct stat *info) {
    return (tt__folder_id){.device = info->st_dev, .inode = info->st_ino};
}

int tt__job_error_dir_make(tt__job *job) {
    struct stat info;
    mode_t before = umask(077); /* with another the folder could have fewer rights */
    int failed = mkdir(job->error_dir, 0700) ? errno : 0, fd = -1;
    umask(before);
    if (failed)
        return failed;
    if ((fd = open_error_dir(job)) < 0 || fstat(fd, &info)) {
        failed = errno;
        if (fd >= 0)
            close(fd);
        return failed;
    }
    job->error_dir_id = folder_id_of(&info);
    return is_empty_folder(fd) ? 0 : EPERM; /* another user has put one in its place */
}

tt_status tt__job_error_dir_failed(int errnum) {
    return tt__fail_errno(TT_ERR_IO, errnum,
                          "can't make a directory for error files in %.200s (TMPDIR chooses another)", parent_folder());
}

const char *tt__job_error_file(const tt__job *job, int i, char path[PATH_MAX]) {
    if (job->logs && job->logs->dir)
        return tt__logs_path(job->logs, job->attempt, i, "error.json", path);
    snprintf(path, PATH_MAX, "%s/worker-%d.json", job->error_dir, i);
    return path;
}

/* Remove what is in a folder, which workers may have filled with anything; `fd` is taken over. */
static void clear_folder(int fd, int depth) {
    enum { DEEPEST = 16 };
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !unlinkat(dirfd(dir), entry->d_name, 0))
            continue;
        if (depth < DEEPEST)
            clear_folder(tt__fd(openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
                         depth + 1);
        unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

/* Where others may write, as in a TMPDIR of a project, they can put any folder of ours under that name. */
void tt__job_error_dir_clear(const tt__job *job) {
    struct stat info;
    int fd = job->error_dir[0] ? open_error_dir(job) : -1;
    if (fd < 0)
        return;
    bool known = fstat(fd, &info) == 0;
    tt__folder_id found = known ? folder_id_of(&info) : (tt__folder_id){0};
    if (known && !memcmp(&found, &job->error_dir_id, sizeof found))
        clear_folder(fd, 0);
    else
        close(fd);
}

void tt__job_error_dir_remove(const tt__job *job) {
    tt__job_error_dir_clear(job);
    if (job->error_dir[0])
        rmdir(job->error_dir);
}
