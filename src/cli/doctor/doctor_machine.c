/* Cores, memory, the clock, and limits of this process (getrlimit). */
#include "cli/doctor/doctor.h"

#include "base/files/fd.h"
#include "base/process/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

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

/* "MemAvailable:    1234 kB" of /proc/meminfo, in bytes; SIZE_MAX: not told. */
static size_t machine_memory(const char *root, const char *name) {
    char path[4200], line[128], word[64];
    unsigned long long kib;
    size_t found = SIZE_MAX;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^:]: %llu", word, &kib) == 2 && !strcmp(word, name))
            found = (size_t)kib << 10;
    if (file)
        fclose(file);
    return found;
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

/* What stands beside each other in the logs of several nodes, and in traces, ought to be of one time. */
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

void tt__doctor_machine(tt__doctor *doctor) {
    check_cores(doctor);
    check_memory(doctor);
    check_shared_memory(doctor);
    check_clock(doctor);
}

static const char *limit_text(rlim_t limit, char text[32]) {
    if (limit == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%" PRIu64, (uint64_t)limit);
    return text;
}

/* A rank has a socket and a memory of each other rank of its host, or a connection, and files of the program's. */
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

/* Ranks map sparse memory many times as large as what they use. */
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

void tt__doctor_limits(tt__doctor *doctor) {
    check_open_files(doctor);
    check_processes(doctor);
    check_address_space(doctor);
    check_minor_limits(doctor);
}
