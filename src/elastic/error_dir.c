/* The private directory where workers leave their error reports (TORCHELASTIC_ERROR_FILE). */
#include "elastic/job.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tt_status tt__job_error_dir_make(tt__job *job) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent)
        parent = "/tmp";
    int n = snprintf(job->error_dir, sizeof job->error_dir, "%s/tutti-XXXXXX", parent);
    int errnum = n < 0 || (size_t)n >= sizeof job->error_dir ? ENAMETOOLONG : mkdtemp(job->error_dir) ? 0 : errno;
    if (!errnum)
        return TT_OK;
    job->error_dir[0] = '\0';
    return tt__fail_errno(TT_ERR_IO, errnum,
                          "can't make a directory for error files in %.200s (TMPDIR chooses another)", parent);
}

const char *tt__job_error_file(const tt__job *job, int i, char *path, size_t size) {
    snprintf(path, size, "%s/rank-%d.json", job->error_dir, job->first_rank + i);
    return path;
}

void tt__job_error_dir_remove(const tt__job *job) {
    DIR *dir = job->error_dir[0] ? opendir(job->error_dir) : NULL;
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    rmdir(job->error_dir);
}
