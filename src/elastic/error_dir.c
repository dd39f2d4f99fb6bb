/* The private directory where workers leave their error reports (TORCHELASTIC_ERROR_FILE). */
#include "elastic/job.h"

#include "base/error.h"
#include "net/secret.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return where temporary files go: TMPDIR, else /tmp. */
static const char *parent_folder(void) {
    const char *parent = getenv("TMPDIR");
    return parent && *parent ? parent : "/tmp";
}

tt_status tt__job_error_dir_name(tt__job *job) {
    uint64_t number;
    TT__TRY(tt__random_bytes(&number, sizeof number));
    int n = snprintf(job->error_dir, sizeof job->error_dir, "%s/tutti-%016llx", parent_folder(),
                     (unsigned long long)number);
    return n > 0 && (size_t)n < sizeof job->error_dir ? TT_OK : tt__job_error_dir_failed(ENAMETOOLONG);
}

tt_status tt__job_error_dir_failed(int errnum) {
    return tt__fail_errno(TT_ERR_IO, errnum,
                          "can't make a directory for error files in %.200s (TMPDIR chooses another)", parent_folder());
}

const char *tt__job_error_file(const tt__job *job, int i, char path[PATH_MAX]) {
    if (job->logs && job->logs->dir)
        return tt__logs_path(job->logs, job->attempt, i, "error.json", path);
    snprintf(path, PATH_MAX, "%s/rank-%d.json", job->error_dir, job->first_rank + i);
    return path;
}

void tt__job_error_dir_clear(const tt__job *job) {
    DIR *dir = job->error_dir[0] ? opendir(job->error_dir) : NULL;
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

void tt__job_error_dir_remove(const tt__job *job) {
    tt__job_error_dir_clear(job);
    if (job->error_dir[0])
        rmdir(job->error_dir);
}
