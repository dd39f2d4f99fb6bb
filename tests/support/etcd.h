/* A cluster of etcd servers for a test: in a folder of its own, on ports that were free, ended with the test. */
#ifndef TESTS_SUPPORT_ETCD_H
#define TESTS_SUPPORT_ETCD_H

#include "support/patience.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/store.h>
#include <unistd.h>

#include <cmocka.h>

enum { ETCD_MEMBERS = 3, ETCD_STARTS = 5, ETCD_WORDS = 32 };

typedef struct etcd {
    int members;
    pid_t pids[ETCD_MEMBERS]; /* 0: not running */
    int ports[ETCD_MEMBERS], peers[ETCD_MEMBERS];
    const char *more[8]; /* further words of each server's command line */
    const char *scheme;  /* of the clients' port: "http", "https" */
    char folder[64];     /* in memory: a test's transactions wait for no disk */
    char endpoints[128]; /* as tt_etcd_store() takes them */
    char one[3][32];     /* each alone */
} etcd;

static inline bool etcd_is_installed(void) {
    return system("command -v etcd >/dev/null 2>&1") == 0; /* NOLINT: the test's own command */
}

/* A free port. If another process takes it before etcd does, the whole start is repeated. */
static inline int etcd_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* Start member i; if it ran before, with the data that it had. */
static inline void etcd_run(etcd *e, int i) {
    char words[11][256], log[128];
    const char *argv[ETCD_WORDS];
    int n = 0;
    snprintf(words[0], sizeof words[0], "m%d", i);
    snprintf(words[1], sizeof words[1], "%s/m%d", e->folder, i);
    snprintf(words[2], sizeof words[2], "%s://127.0.0.1:%d", e->scheme, e->ports[i]);
    snprintf(words[3], sizeof words[3], "http://127.0.0.1:%d", e->peers[i]);
    size_t used = 0;
    for (int k = 0; k < e->members; k++)
        used += (size_t)snprintf(words[4] + used, sizeof words[4] - used, "%sm%d=http://127.0.0.1:%d", k ? "," : "", k,
                                 e->peers[k]);
    const char *fixed[] = {"etcd", "--name", words[0], "--data-dir", words[1], "--listen-client-urls", words[2],
                           "--advertise-client-urls", words[2], "--listen-peer-urls", words[3],
                           "--initial-advertise-peer-urls", words[3], "--initial-cluster", words[4],
                           /* a busy machine: a leader that is late has not died */
                           "--heartbeat-interval", "100", "--election-timeout", e->members > 1 ? "2000" : "500"};
    for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
        argv[n++] = fixed[k];
    for (size_t k = 0; k < sizeof e->more / sizeof *e->more && e->more[k]; k++)
        argv[n++] = e->more[k];
    argv[n] = NULL;
    snprintf(log, sizeof log, "%s/m%d.log", e->folder, i);
    fflush(NULL);
    pid_t parent = getpid();
    e->pids[i] = fork();
    assert_true(e->pids[i] >= 0);
    if (e->pids[i])
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0); /* a group with a stopped process gets SIGHUP from the kernel when it loses its last outer parent */
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (getppid() != parent || fd < 0)
        _exit(1);
    dup2(fd, 1);
    dup2(fd, 2);
    setenv("GOMAXPROCS", "2", 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static inline void etcd_kill(etcd *e, int i) {
    if (!e->pids[i])
        return;
    kill(e->pids[i], SIGKILL);
    while (waitpid(e->pids[i], NULL, 0) < 0 && errno == EINTR)
        ;
    e->pids[i] = 0;
}

static inline int etcd_remove_entry(const char *path, const struct stat *s, int flag, struct FTW *level) {
    (void)s;
    (void)flag;
    (void)level;
    return remove(path);
}

static inline void etcd_stop(etcd *e) {
    for (int i = 0; i < e->members; i++)
        etcd_kill(e, i);
    if (*e->folder)
        nftw(e->folder, etcd_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    *e->folder = '\0';
}

/* Has any of them ended by itself? */
static inline bool etcd_has_ended(etcd *e) {
    for (int i = 0; i < e->members; i++)
        if (e->pids[i] && waitpid(e->pids[i], NULL, WNOHANG) == e->pids[i]) {
            e->pids[i] = 0;
            return true;
        }
    return false;
}

/* Wait until each member listens; false: one has ended. */
static inline bool etcd_listens(etcd *e) {
    for (int i = 0; i < e->members; i++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)e->ports[i])};
        for (bool connected = false; !connected;) {
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            connected = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
            close(fd);
            if (etcd_has_ended(e))
                return false;
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
    }
    return true;
}

/* Start `members`, with `more` words (NULL: none). They listen when this returns. */
static inline void etcd_start_with(etcd *e, int members, const char *scheme, const char *const *more) {
    for (int tries = 0; tries < ETCD_STARTS; tries++) {
        *e = (etcd){.members = members, .scheme = scheme};
        for (int i = 0; more && more[i]; i++)
            e->more[i] = more[i];
        snprintf(e->folder, sizeof e->folder, "%s/test-etcd-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        assert_non_null(mkdtemp(e->folder));
        size_t used = 0;
        for (int i = 0; i < members; i++) {
            e->ports[i] = etcd_free_port();
            e->peers[i] = etcd_free_port();
            snprintf(e->one[i], sizeof e->one[i], "%s://127.0.0.1:%d", scheme, e->ports[i]);
            used += (size_t)snprintf(e->endpoints + used, sizeof e->endpoints - used, "%s%s", i ? "," : "", e->one[i]);
        }
        for (int i = 0; i < members; i++)
            etcd_run(e, i);
        if (etcd_listens(e))
            return;
        etcd_stop(e);
    }
    fail_msg("etcd doesn't start");
}

static inline void etcd_start(etcd *e, int members) { etcd_start_with(e, members, "http", NULL); }

#endif
