/* How many ranks this user may run on this host: what limits of descriptors, processes and Tutti's own leave. */
#include "cli/doctor/doctor.h"

#include "base/files/fd.h"
#include "base/process/limits.h"
#include "comm/shared/shm.h"
#include "net/local_socket.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors: the launcher's for each rank, which are more than a rank's for each other one; and a program's own. */
enum { RANK_DESCRIPTORS = 4, OTHER_DESCRIPTORS = 64 };

/* Threads: the program's, the one that serves connections, and one that loads batches. */
enum { RANK_THREADS = 3 };

/* The ranks that a limit leaves room for, and its name. */
typedef struct room {
    long long ranks;
    const char *limit, *fix;
} room;

static void take_less(room *least, long long ranks, const char *limit, const char *fix) {
    if (ranks < least->ranks)
        *least = (room){ranks < 0 ? 0 : ranks, limit, fix};
}

/* "Threads: 5" of /proc/PID/status, if this user's process has that. */
static long long threads_of(const char *root, const char *pid) {
    char path[4200], line[256];
    long long threads = 0;
    unsigned user = UINT_MAX;
    snprintf(path, sizeof path, "%s/proc/%.20s/status", root, pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %u", &user) != 1)
            (void)!sscanf(line, "Threads: %lld", &threads);
    if (file)
        fclose(file);
    return user == getuid() ? threads : 0;
}

/* Threads of this user that run now; 0: not told. */
static long long running_threads(const char *root) {
    char path[4200];
    long long threads = 0;
    snprintf(path, sizeof path, "%s/proc", root);
    DIR *all = opendir(path);
    for (const struct dirent *entry; all && (entry = readdir(all));)
        if (*entry->d_name >= '1' && *entry->d_name <= '9')
            threads += threads_of(root, entry->d_name);
    if (all)
        closedir(all);
    return threads;
}

static void take_pids(const char *dir, void *user) {
    long long most[2], now[2];
    tt__cgroup_numbers(dir, "pids.max", most);
    tt__cgroup_numbers(dir, "pids.current", now);
    if (most[0] >= 0 && now[0] >= 0)
        take_less(user, (most[0] - now[0]) / RANK_THREADS, "processes of the cgroup",
                  "raise pids.max: TasksMax= of a service, docker run --pids-limit");
}

static room find_room(const tt__doctor *doctor) {
    struct rlimit limit;
    room least = {TT__MAX_HOST_RANKS, "all that share a host's memory", ""};
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < INT_MAX)
        take_less(&least, ((long long)limit.rlim_cur - OTHER_DESCRIPTORS) / RANK_DESCRIPTORS, "open files",
                  "ulimit -n 1024, before the program is started");
    if (geteuid() && !getrlimit(RLIMIT_NPROC, &limit) && limit.rlim_cur < INT_MAX)
        take_less(&least, ((long long)limit.rlim_cur - running_threads(doctor->root)) / RANK_THREADS, "processes",
                  "end other programs of this user, or ulimit -u 4096");
    tt__cgroup_walk(doctor->root, "pids", take_pids, &least);
    return least;
}

static void check_room(tt__doctor *doctor) {
    room least = find_room(doctor);
    int wanted = doctor->launched.name ? doctor->launched.local_world : 1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool few = least.ranks < wanted, some = least.ranks < TT__MAX_HOST_RANKS && least.ranks < cores;
    tt__doctor_add(doctor, "ranks of a host",
                   few    ? TT__BAD
                   : some ? TT__DOUBTFUL
                          : TT__FINE,
                   "this user may run %lld here; the limit is %s", least.ranks, least.limit);
    if (few || some)
        tt__doctor_fix(doctor, "%s", *least.fix ? least.fix : "start fewer on each host");
}

/* Does the kernel carry descriptors of this user? It refuses when very many have been sent and not received. */
static void check_handing_over(tt__doctor *doctor) {
    int ends[2];
    struct rlimit limit = {0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    bool carried = tt__send_packet(ends[0], "", 1, ends[0]);
    int errnum = carried ? 0 : errno;
    close(ends[0]);
    close(ends[1]);
    if (errnum != ETOOMANYREFS)
        return;
    getrlimit(RLIMIT_NOFILE, &limit);
    tt__doctor_add(doctor, "shared memory", TT__BAD,
                   "ranks of this host can't hand each other their memory: processes of this user have more than "
                   "%" PRIu64 " descriptors on their way in Unix sockets",
                   (uint64_t)limit.rlim_cur);
    tt__doctor_fix(doctor, "end the process that does not receive what it is sent, or raise ulimit -n");
}

void tt__doctor_ranks(tt__doctor *doctor) {
    check_room(doctor);
    check_handing_over(doctor);
}
