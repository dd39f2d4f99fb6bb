/* Limits of this process (getrlimit). */
#include "cli/doctor/doctor.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

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
