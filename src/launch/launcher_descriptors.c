/* Are there enough descriptors for a job? */
#include "base/error.h"
#include "launch/launcher_parts.h"
#include "launch/launcher_watchdog.h"

#include <dirent.h>
#include <limits.h>
#include <sys/resource.h>

/* Beside those that are open: for signals, the keeper, the log, the store and a client of it, the secret, the job's
 * socket, and two files read in between; for a worker its stderr, its recorder, and connections to the store and the
 * job's socket. */
enum { OWN_DESCRIPTORS = 21, WORKER_DESCRIPTORS = 4, NODES_DESCRIPTORS = 4 };

static int open_descriptors(void) {
    int n = 0;
    DIR *own = opendir("/proc/self/fd");
    for (const struct dirent *entry; own && (entry = readdir(own));)
        n += entry->d_name[0] != '.';
    if (own)
        closedir(own);
    return own ? n - 1 : 3; /* `own` is among them */
}

tt_status tt__launcher_check_descriptors(const tt__job *job, int *spare) {
    struct rlimit limit;
    int need = open_descriptors() + OWN_DESCRIPTORS + WORKER_DESCRIPTORS * job->workers;
    need += tt__follow_descriptors(job) + tt__watchdog_descriptors(job);
    if (job->max_nodes > 1)
        need += NODES_DESCRIPTORS;
    *spare = INT_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= INT_MAX)
        return TT_OK;
    *spare = (int)limit.rlim_cur - need;
    if (*spare >= 0)
        return TT_OK;
    return tt__fail(TT_ERR_SYSTEM,
                    "launching %d worker%s takes %d descriptors at least, but this process may have %d (ulimit -n)",
                    job->workers, job->workers == 1 ? "" : "s", need, (int)limit.rlim_cur);
}
