/* Other hosts, reached by ssh: whether this command is there, and how far their clocks are from this host's. */
#include "cli/doctor/doctor.h"

#include "base/error.h"
#include "elastic/remote_clock.h"

#include <stdlib.h>

/* Far enough to mislead whoever lays logs side by side; so far that credentials and certificates begin to be refused
 * (munged lets them live five minutes by default). */
enum { ASK_MS = 30000, MISLEADING_MS = 100, REFUSED_MS = 60000 };

/* The host whose clock may be farthest off, of those that are well. */
typedef struct farthest {
    int hosts;
    const char *name;
    double ms;
} farthest;

static void check_host(tt__doctor *doctor, const tt__host *host, farthest *most) {
    tt__remote_clock clock;
    if (tt__remote_clock_ask(&clock, host->name, ASK_MS)) {
        tt__doctor_add(doctor, "hosts", TT__BAD, "%.200s: %s", host->name, tt_last_error());
        tt__doctor_fix(doctor,
                       "`ssh %.200s true` must work without a password or a question, and this command lie there at "
                       "the same path, in the same version; TUTTI_SSH is another command than ssh",
                       host->name);
        return;
    }
    double ms = (double)llabs(clock.ahead_ns) / 1e6, error_ms = (double)clock.error_ns / 1e6;
    if (ms - error_ms > MISLEADING_MS) {
        tt__doctor_add(
            doctor, "clock", ms > REFUSED_MS ? TT__BAD : TT__DOUBTFUL,
            "that of %.200s is %.3f s %s this host's (give or take %.3f s): times in logs of both are not to "
            "be compared%s",
            host->name, ms / 1e3, clock.ahead_ns > 0 ? "ahead of" : "behind", error_ms / 1e3,
            ms > REFUSED_MS ? "; credentials and certificates may be refused" : "");
        tt__doctor_fix(doctor, "let chrony or systemd-timesyncd run on both; there and here, `timedatectl` shows the "
                               "state, and `chronyc makestep` sets the clock at once");
        return;
    }
    most->hosts++;
    if (ms + error_ms >= most->ms) {
        most->ms = ms + error_ms;
        most->name = host->name;
    }
}

tt_status tt__doctor_hosts(tt__doctor *doctor, const char *list, const char *path) {
    tt__hosts hosts = {0};
    farthest most = {0};
    tt_status status = list ? tt__hosts_from_list(&hosts, list) : tt__hosts_from_file(&hosts, path);
    for (int i = 0; !status && i < hosts.n; i++)
        check_host(doctor, &hosts.of[i], &most);
    if (most.hosts)
        tt__doctor_add(doctor, "clock", TT__FINE, "%d host%s by ssh: within %.2f ms of this one's at most (%.200s)",
                       most.hosts, most.hosts == 1 ? "" : "s", most.ms, most.name);
    tt__hosts_free(&hosts);
    return status ? tt__fail_prefix(list ? "--ssh" : "--hostfile") : TT_OK;
}
