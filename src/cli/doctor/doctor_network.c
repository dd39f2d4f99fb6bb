/* This host's name and interfaces, what is open between hosts, and other hosts, reached by ssh. */
#include "cli/doctor/doctor.h"

#include "base/error.h"
#include "base/machine/host_name.h"
#include "launch/adapters/remote_clock.h"
#include "net/net.h"
#include "net/secure/munge.h"
#include "net/secure/secret.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "192.0.2.1", "[fd00::1]" */
static void bare_address_text(const struct sockaddr *address, char text[TT__NET_ADDRESS_SIZE]) {
    tt__net_address_text(address, text);
    char *colon = strrchr(text, ':');
    if (colon)
        *colon = '\0';
}

static void check_host_name(tt__doctor *doctor) {
    char name[256] = "";
    char address[TT__NET_ADDRESS_SIZE] = "";
    struct addrinfo *list = NULL;
    const struct addrinfo *at;
    bool several = tt__doctor_several_hosts(doctor);
    tt__host_name(name, sizeof name);
    int error = *name ? tt__net_resolve(name, NULL, 0, &list) : EAI_NONAME;
    if (error) {
        tt__doctor_add(doctor, "host name", several ? TT__BAD : TT__DOUBTFUL,
                       "\"%s\" is unknown to this host itself: %s", name, gai_strerror(error));
        tt__doctor_fix(doctor, "add it to /etc/hosts; or give an address as MASTER_ADDR");
        return;
    }
    for (at = list; at && tt__net_is_loopback(at->ai_addr);)
        at = at->ai_next;
    bare_address_text((at ? at : list)->ai_addr, address);
    if (at)
        tt__doctor_add(doctor, "host name", TT__FINE, "%s is %s", name, address);
    else
        tt__doctor_add(doctor, "host name", TT__FINE,
                       "%s is %s, loopback: enough on one host; a store named so is served on all of this host's "
                       "addresses, for other nodes, which must know the name by one of these",
                       name, address);
    freeaddrinfo(list);
}

static void check_interfaces(tt__doctor *doctor) {
    tt__interface list[TT__INTERFACES_MAX];
    size_t n = tt__interfaces(list, TT__INTERFACES_MAX);
    const char *wanted = tt__environment_value(doctor->environment, "TT_SOCKET_IFNAME");
    bool several = tt__doctor_several_hosts(doctor);
    int outside = 0, passing = 0;
    char text[512] = "", address[TT__NET_ADDRESS_SIZE];
    FILE *out = fmemopen(text, sizeof text, "w");
    for (size_t i = 0; i < n; i++) {
        bool passes = tt__interface_passes(wanted, list[i].name);
        outside += !list[i].loopback;
        passing += passes && !(list[i].loopback && !wanted);
        if (list[i].loopback || !passes)
            continue;
        bare_address_text((const struct sockaddr *)&list[i].address, address);
        if (out)
            fprintf(out, "%s%s %s", ftell(out) > 0 ? ", " : "", list[i].name, address);
    }
    if (out)
        fclose(out);
    if (wanted && !passing) {
        tt__doctor_add(doctor, "interfaces", TT__BAD, "TT_SOCKET_IFNAME=%.100s leaves none of the %zu addresses here",
                       wanted, n);
        tt__doctor_fix(doctor, "`ip -brief address` lists the interfaces; \"eth\" means those whose names begin so, "
                               "\"=eth0\" that one, \"^docker\" all others");
    } else if (!outside) {
        tt__doctor_add(doctor, "interfaces", several ? TT__BAD : TT__FINE,
                       "loopback alone: ranks of other hosts can't "
                       "be reached");
        if (several)
            tt__doctor_fix(doctor, "bring an interface up, or leave this node out");
    } else {
        tt__doctor_add(doctor, "interfaces", TT__FINE, "%s%s%s", text, wanted ? "; TT_SOCKET_IFNAME=" : "",
                       wanted ? wanted : "");
    }
}

/* Several hosts without a secret: can MUNGE bring one? */
static void check_munge(tt__doctor *doctor) {
    char credential[TT__MUNGE_CREDENTIAL_MAX];
    bool srun = doctor->launched.is_srun;
    if (srun && !tt__munge_seal(credential, "the doctor's")) {
        tt__doctor_add(doctor, "job secret", TT__FINE, "MUNGE brings it to all ranks: rank 0 draws one for each step");
        return;
    }
    tt__doctor_add(doctor, "job secret", TT__BAD,
                   "none, but there are several hosts: the store that a rank serves answers no other machine%s%s",
                   srun ? "; srun's ranks get one by MUNGE, but " : "", srun ? tt_last_error() : "");
    tt__doctor_fix(doctor,
                   "(umask 077; set -C; openssl rand -hex 32 >FILE) on a file system that all nodes see, and "
                   "TT_SECRET_FILE=FILE for all ranks%s",
                   srun ? "; or munged on all nodes (TT_MUNGE_SOCKET names its socket)" : "");
}

static void check_job_secret(tt__doctor *doctor) {
    tt__secret secret;
    tt__wire wire;
    bool several = tt__doctor_several_hosts(doctor);
    if (tt__secret_load(&secret) || tt__wire_check(&wire, &secret)) {
        tt__doctor_add(doctor, "job secret", TT__BAD, "%s", tt_last_error());
        tt__doctor_fix(doctor, "mend or unset the variable that is named: docs/security.md");
    } else if (secret.set) {
        tt__doctor_add(doctor, "job secret", TT__FINE, "there is one: who does not know it can't join");
    } else if (wire == TT__WIRE_TLS) {
        tt__doctor_add(doctor, "job secret", TT__FINE, "none; certificates prove who may join");
    } else if (several) {
        check_munge(doctor);
    } else {
        tt__doctor_add(doctor, "job secret", TT__FINE, "none; on one host only this user's processes can take part");
    }
    tt__secret_wipe(&secret);
}

void tt__doctor_network(tt__doctor *doctor) {
    check_host_name(doctor);
    check_interfaces(doctor);
    check_job_secret(doctor);
}

/* ---- other hosts: is this command there, and how far are their clocks from this host's ---- */

/* From MISLEADING_MS on, logs of both hosts can't be compared; from REFUSED_MS on, credentials and certificates may be
 * refused (munged lets them live five minutes by default). */
enum { ASK_MS = 30000, MISLEADING_MS = 100, REFUSED_MS = 60000 };

/* Of the hosts whose clocks are right: their number, and the one that may be farthest off. */
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
