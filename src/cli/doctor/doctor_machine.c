/* Limits of this process (getrlimit), how many ranks they leave room for, cores, memory and the clock. */
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

/* ---- cores, memory, clock */

enum { MIB = 1 << 20, LITTLE_MIB = 512, TOO_LITTLE_MIB = 64 };

static void check_cores(tt__doctor *doctor) {
    int cores = tt__cores(), ranks = doctor->launched.local_world;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    const char *threads = tt__environment_value(doctor->environment, "OMP_NUM_THREADS");
    bool crowded = online > 0 && ranks > online; /* each may be bound to cores of its own */
    tt__doctor_add(doctor, "cores", crowded ? TT__DOUBTFUL : TT__FINE, "%d of %ld may be used (affinity, cgroup)%s%s",
                   cores, online, threads ? "; OMP_NUM_THREADS=" : "", threads ? threads : "");
    if (crowded)
        tt__doctor_fix(doctor,
                       "%d ranks of this host take turns on them: start fewer, or give each a core of its own "
                       "(srun --cpus-per-task=1, mpirun --bind-to none)",
                       ranks);
}

/* Read a line such as "MemAvailable:    1234 kB" of /proc/meminfo, in bytes; SIZE_MAX: it is not there. */
static size_t machine_memory(const char *root, const char *name) {
    char path[4200], value[64];
    unsigned long long kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    tt__doctor_read_line(path, name, value, sizeof value);
    return sscanf(value, "%llu", &kib) == 1 ? (size_t)kib << 10 : SIZE_MAX;
}

static void check_memory(tt__doctor *doctor) {
    size_t limit = tt__cgroup_memory_limit(doctor->root), left = tt__cgroup_memory_left(doctor->root);
    size_t total = machine_memory(doctor->root, "MemTotal"), available = machine_memory(doctor->root, "MemAvailable");
    size_t least = left < available ? left : available;
    long long kills = tt__cgroup_memory_kills(doctor->root);
    char group[96] = "no cgroup limits it";
    if (limit != SIZE_MAX)
        snprintf(group, sizeof group, "the cgroup's limit is %zu MiB, of which %zu are left", limit / MIB, left / MIB);
    if (least == SIZE_MAX) {
        tt__doctor_add(doctor, "memory", TT__FINE, "not told here");
        return;
    }
    bool little = least / MIB < LITTLE_MIB;
    tt__doctor_add(doctor, "memory",
                   least / MIB < TOO_LITTLE_MIB ? TT__BAD
                   : little                     ? TT__DOUBTFUL
                                                : TT__FINE,
                   "%zu of %zu MiB are free; %s", available / MIB, total / MIB, group);
    if (little)
        tt__doctor_fix(doctor, "%s",
                       left < available ? "raise the limit: srun --mem, MemoryMax= of a service, "
                                          "resources.limits.memory of a pod, docker run --memory"
                                        : "end other processes, or take another node");
    if (kills > 0)
        tt__doctor_add(doctor, "memory", TT__DOUBTFUL,
                       "the kernel has killed %lld processes of this cgroup because "
                       "memory ran out",
                       kills);
    if (kills > 0)
        tt__doctor_fix(doctor, "raise its limit, or let ranks use less: smaller batches, fewer ranks");
}

static void check_shared_memory(tt__doctor *doctor) {
    int fd = tt__fd(memfd_create("tutti-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) {
        tt__doctor_add(doctor, "shared memory", TT__BAD, "memfd_create: %s", strerror(errno));
        tt__doctor_fix(doctor, "a kernel from 3.17 on has it; a container's seccomp filter must let it through. Until "
                               "then TT_TRANSPORT=tcp does without");
        return;
    }
    close(fd);
    tt__doctor_add(doctor, "shared memory", TT__FINE, "by memfd; /dev/shm, whatever its size, is not used");
}

/* Times in logs and traces of several nodes can be compared only if the clocks agree. */
static void check_clock(tt__doctor *doctor) {
    struct timex now = {0};
    int state = adjtimex(&now);
    bool several = tt__doctor_several_hosts(doctor);
    if (state < 0) {
        tt__doctor_add(doctor, "clock", TT__FINE, "whether it is synchronised is not told here: %s", strerror(errno));
    } else if (state == TIME_ERROR || now.status & STA_UNSYNC) {
        tt__doctor_add(doctor, "clock", several ? TT__DOUBTFUL : TT__FINE, "not synchronised%s",
                       several ? ": times in logs of several nodes are not to be compared"
                               : "; one host needs no more");
        if (several)
            tt__doctor_fix(doctor, "run chrony or systemd-timesyncd on all nodes; `timedatectl` shows the state");
    } else {
        tt__doctor_add(doctor, "clock", TT__FINE, "synchronised, to %.1f ms at worst", (double)now.maxerror / 1e3);
    }
}

/* ---- limits */

static const char *limit_text(rlim_t limit, char text[32]) {
    if (limit == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%" PRIu64, (uint64_t)limit);
    return text;
}

/* A rank has a socket and a memory, or a connection, for each other rank, and the program's own files. */
static void check_open_files(tt__doctor *doctor) {
    struct rlimit limit;
    char soft[32], hard[32];
    rlim_t needed = 64 + 4 * (rlim_t)(doctor->launched.name ? doctor->launched.world : 1);
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit_text(limit.rlim_cur, soft);
    limit_text(limit.rlim_max, hard);
    bool few = limit.rlim_cur < needed;
    tt__doctor_add(doctor, "open files",
                   few                     ? TT__BAD
                   : limit.rlim_cur < 1024 ? TT__DOUBTFUL
                                           : TT__FINE,
                   "%s may be open at a time (at most %s); this job needs about %" PRIu64, soft, hard,
                   (uint64_t)needed);
    if (limit.rlim_cur < 1024 || few)
        tt__doctor_fix(doctor,
                       limit.rlim_max >= needed && limit.rlim_max >= 1024
                           ? "ulimit -n %s, before the program is started"
                           : "raise the hard limit, now %s: \"nofile\" in /etc/security/limits.conf, "
                             "LimitNOFILE= of a service, --ulimit of a container",
                       hard);
}

static void check_processes(tt__doctor *doctor) {
    struct rlimit limit;
    char soft[32];
    if (getrlimit(RLIMIT_NPROC, &limit))
        return;
    bool few = limit.rlim_cur < 64, some = limit.rlim_cur < 1024;
    tt__doctor_add(doctor, "processes",
                   few    ? TT__BAD
                   : some ? TT__DOUBTFUL
                          : TT__FINE,
                   "%s processes and threads of this user may run", limit_text(limit.rlim_cur, soft));
    if (some)
        tt__doctor_fix(doctor, "ulimit -u 4096, or \"nproc\" in /etc/security/limits.conf: each rank has a thread for "
                               "each core");
}

/* Ranks map sparse memory, of which they use a small part. */
static void check_address_space(tt__doctor *doctor) {
    struct rlimit limit;
    char soft[32];
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY) {
        tt__doctor_add(doctor, "address space", TT__DOUBTFUL,
                       "limited to %s bytes: ranks map the shared memory of all "
                       "ranks of their host",
                       limit_text(limit.rlim_cur, soft));
        tt__doctor_fix(doctor, "ulimit -v unlimited; or TT_SYMMETRIC_HEAP=64M makes the maps smaller");
    }
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY) {
        tt__doctor_add(doctor, "file size", TT__DOUBTFUL, "limited to %s bytes, which holds for shared memory as well",
                       limit_text(limit.rlim_cur, soft));
        tt__doctor_fix(doctor, "ulimit -f unlimited");
    }
}

static void check_minor_limits(tt__doctor *doctor) {
    struct rlimit locked, core;
    char locked_text[32], core_text[32];
    if (getrlimit(RLIMIT_MEMLOCK, &locked) || getrlimit(RLIMIT_CORE, &core))
        return;
    bool none = locked.rlim_cur < 65536;
    tt__doctor_add(doctor, "locked memory", none ? TT__DOUBTFUL : TT__FINE,
                   "%s bytes; one page a connection, with its keys, is kept from the swap",
                   limit_text(locked.rlim_cur, locked_text));
    if (none)
        tt__doctor_fix(doctor, "ulimit -l 65536 (KiB), if the machine has a swap");
    tt__doctor_add(doctor, "core dumps", TT__FINE, "%s%s", core.rlim_cur ? "limit " : "none are written",
                   core.rlim_cur ? limit_text(core.rlim_cur, core_text) : " (ulimit -c unlimited changes that)");
}

/* ---- how many ranks the limits leave room for */

/* Descriptors of the launcher for each rank, which are more than a rank has for each other one; and a program's own. */
enum { RANK_DESCRIPTORS = 4, OTHER_DESCRIPTORS = 64 };

/* The program's thread, the one that serves connections, and one that loads batches. */
enum { RANK_THREADS = 3 };

/* How many ranks a limit leaves room for, its name, and how to raise it. */
typedef struct room {
    long long ranks;
    const char *limit, *fix;
} room;

static void take_less(room *least, long long ranks, const char *limit, const char *fix) {
    if (ranks < least->ranks)
        *least = (room){ranks < 0 ? 0 : ranks, limit, fix};
}

/* Read "Threads: 5" of /proc/PID/status; 0 for a process of another user. */
static long long threads_of(const char *root, const char *pid) {
    char path[4200], user[64], threads[64];
    snprintf(path, sizeof path, "%s/proc/%.20s/status", root, pid);
    tt__doctor_read_line(path, "Uid", user, sizeof user);
    tt__doctor_read_line(path, "Threads", threads, sizeof threads);
    return *user && strtoul(user, NULL, 10) == getuid() ? strtoll(threads, NULL, 10) : 0;
}

/* Count the threads of this user that run now; 0: not told. */
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

/* Does the kernel carry descriptors of this user? It refuses while very many have been sent and not received. */
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

void tt__doctor_machine(tt__doctor *doctor) {
    check_open_files(doctor);
    check_processes(doctor);
    check_address_space(doctor);
    check_minor_limits(doctor);
    check_room(doctor);
    check_handing_over(doctor);
    check_cores(doctor);
    check_memory(doctor);
    check_shared_memory(doctor);
    check_clock(doctor);
}
