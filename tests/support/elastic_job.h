/* A launcher for tests of recovery. It starts the workers of a job, and reads the words in their flight recorders. When
 * ranks are lost or others join, it tells the workers the next round (net/job/job_socket.h), in which lost ranks are
 * replaced or left out. It serves the job's store itself. The workers run this same program: elastic_job_begin(), first
 * in main(), turns to `worker`. */
#ifndef TESTS_SUPPORT_ELASTIC_JOB_H
#define TESTS_SUPPORT_ELASTIC_JOB_H

#include "base/machine/clock.h"
#include "net/job/job_socket.h"
#include "store/signed.h"
#include "support/patience.h"

#include <tutti/store.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB_WORKERS = 64, JOB_CALLERS = 256, JOB_RANKS = 8 };

typedef enum job_policy { JOB_REPLACES, JOB_SHRINKS, JOB_NEVER_ANSWERS } job_policy;

typedef struct job_worker {
    pid_t pid;
    int rank, born;     /* rank in the present round, -1: in none; `born`: the round it was started for */
    bool ended, killed; /* killed: by job_kill() */
    int status;         /* as waitpid() gives it */
    char *mapping;      /* NULL: it has shown no recorder */
    size_t mapped, at, size;
    uint32_t lost, stopped_by; /* the last values in its recorder */
} job_worker;

typedef struct job_caller {
    int fd;
    pid_t pid;
    bool awaits;
    int wanted; /* the last round that it was asked to want */
} job_caller;

typedef struct job {
    const char *mode;           /* handed to the workers */
    const char *const *program; /* NULL-terminated: what the workers run instead, with stdout appended to "out" */
    int world, round;
    job_policy policy;
    int grow;     /* how many more are to join */
    int drop;     /* the rank that the next round leaves out, though it lives, plus 1; 0: none */
    int failures; /* ranks that were lost */
    int unknown;  /* unexpected endings: exit codes that are neither 0 nor agreed */
    int64_t began_ms;
    tt_store_server *server;
    tt_store *store;
    tt__secret secret;
    int listener;
    char name[TT__JOB_NAME_SIZE];
    job_worker workers[JOB_WORKERS];
    int started;
    job_caller callers[JOB_CALLERS];
    int called;
    /* What happens in the test: called again and again. */
    void (*happen)(struct job *j);
    uint64_t state; /* for `happen`, as are the following */
    int64_t due_ms;
    long due_bytes;
    int events;
} job;

static inline void job_check(bool good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "elastic_job.h: %s: %s\n", what, tt_last_error());
    abort();
}

/* ---- workers */

static inline void job_set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static inline void job_start_worker(job *j, int rank) {
    job_check(j->started < JOB_WORKERS, "too many workers");
    job_worker *w = &j->workers[j->started++];
    *w = (job_worker){.rank = rank, .born = j->round};
    fflush(NULL);
    w->pid = fork();
    job_check(w->pid >= 0, "fork");
    if (w->pid)
        return;
    job_set_number("RANK", rank);
    job_set_number("LOCAL_RANK", rank);
    job_set_number("WORLD_SIZE", j->world);
    job_set_number("MASTER_PORT", tt_store_server_port(j->server));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TT_JOB_SOCKET", j->name, 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    if (j->round)
        job_set_number("TT_ROUND", j->round);
    if (j->program) {
        int out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(out, STDOUT_FILENO);
        execv(j->program[0], (char *const *)(uintptr_t)j->program);
    }
    execl("/proc/self/exe", program_invocation_name, "worker", j->mode, (char *)NULL);
    _exit(99);
}

static inline bool job_words(const job_worker *w, tt__recovery *words) {
    return w->mapping && tt__recovery_read(w->mapping + w->at, w->size, words);
}

static inline job_worker *job_worker_of_rank(job *j, int rank) {
    for (int i = j->started - 1; i >= 0; i--)
        if (!j->workers[i].ended && j->workers[i].rank == rank)
            return &j->workers[i];
    return NULL;
}

/* Kill the rank, if it lives. */
static inline void job_kill(job *j, int rank) {
    job_worker *w = job_worker_of_rank(j, rank);
    if (!w)
        return;
    kill(w->pid, SIGKILL);
    w->killed = true;
}

/* ---- what they show */

static inline void job_take_recorder(job *j, const job_caller *c, const tt__job_recorder *at, int memory) {
    struct stat info;
    for (int i = 0; i < j->started && memory >= 0; i++) {
        job_worker *w = &j->workers[i];
        if (w->pid != c->pid || fstat(memory, &info))
            continue;
        if (w->mapping)
            munmap(w->mapping, w->mapped);
        w->mapped = (size_t)info.st_size;
        w->mapping = mmap(NULL, w->mapped, PROT_READ, MAP_SHARED, memory, 0);
        job_check(w->mapping != MAP_FAILED, "can't map a recorder");
        w->at = at->offset;
        w->size = at->size;
    }
    if (memory >= 0)
        close(memory);
}

static inline void job_listen(job *j) {
    for (int fd; j->called < JOB_CALLERS && (fd = tt__job_socket_accept(j->listener)) >= 0;) {
        struct ucred who = {0};
        socklen_t size = sizeof who;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
        j->callers[j->called++] = (job_caller){.fd = fd, .pid = who.pid};
    }
    for (int i = 0; i < j->called; i++) {
        job_caller *c = &j->callers[i];
        tt__job_packet packet;
        int memory, got = 1;
        while (c->fd >= 0 && (got = tt__job_receive(c->fd, &packet, &memory)) > 0) {
            c->awaits = c->awaits || packet.kind == TT__JOB_AWAITS;
            if (packet.kind == TT__JOB_RECORDER)
                job_take_recorder(j, c, &packet.recorder, memory);
            else if (memory >= 0)
                close(memory);
        }
        if (c->fd >= 0 && got < 0) {
            close(c->fd);
            *c = j->callers[--j->called];
            i--;
        }
    }
}

/* ---- rounds */

static inline void job_set_signed(job *j, const char *key, const char *text) {
    job_check(!tt__signed_set(j->store, &j->secret, key, tt__store_life(j->store), text, strlen(text)), key);
}

static inline void job_note_ends(job *j) {
    for (int i = 0; i < j->started; i++) {
        job_worker *w = &j->workers[i];
        tt__recovery words;
        char key[64];
        if (w->ended || waitpid(w->pid, &w->status, WNOHANG) != w->pid)
            continue;
        w->ended = true;
        if (job_words(w, &words)) {
            w->lost = words.lost;
            w->stopped_by = words.stopped_by;
        }
        bool agreed = w->stopped_by && WIFEXITED(w->status) && WEXITSTATUS(w->status) == 128 + (int)w->stopped_by;
        if (agreed || w->status == 0 || w->rank < 0)
            continue;
        if (!WIFSIGNALED(w->status) || WTERMSIG(w->status) != SIGKILL)
            j->unknown++;
        j->failures++;
        job_set_signed(j, tt__ended_key(key, w->rank, j->round),
                       WIFSIGNALED(w->status) ? "signal 9 (SIGKILL)" : "an exit code");
    }
}

/* Do all living workers want the next round? *living: how many. */
static inline bool job_all_want(job *j, int *living) {
    *living = 0;
    for (int i = 0; i < j->started; i++) {
        tt__recovery words = {0};
        if (j->workers[i].ended || j->workers[i].rank < 0)
            continue;
        ++*living;
        if (!job_words(&j->workers[i], &words) || words.wants_round != (uint32_t)j->round + 1)
            return false;
    }
    return true;
}

/* Tell a worker of a round, on all connections where it may listen. */
static inline void job_tell(job *j, const job_worker *w, tt__job_kind kind, int number, int rank) {
    tt__job_packet packet = {.round = {number, rank, j->world, tt_store_server_port(j->server), "127.0.0.1", ""}};
    snprintf(packet.round.reason, sizeof packet.round.reason, "%d ranks were lost so far\n", j->failures);
    for (int i = 0; i < j->called; i++)
        if (j->callers[i].awaits && j->callers[i].pid == w->pid &&
            (kind != TT__JOB_WANTED || j->callers[i].wanted != number)) {
            tt__job_send(j->callers[i].fd, kind, &packet, -1);
            j->callers[i].wanted = number;
        }
}

/* Ask all workers to want the next round, except those that were asked before. */
static inline void job_ask(job *j) {
    for (int i = 0; i < j->started; i++)
        if (!j->workers[i].ended && j->workers[i].rank >= 0)
            job_tell(j, &j->workers[i], TT__JOB_WANTED, j->round + 1, j->workers[i].rank);
}

/* Tell the next round, with the living ranks and `more` others, and start the new ones. */
static inline void job_next_round(job *j, int more) {
    int new_rank[JOB_RANKS], world = 0, old = j->world;
    bool held[JOB_RANKS] = {false};
    job_listen(j);
    for (int r = 0; r < old; r++) {
        const job_worker *w = job_worker_of_rank(j, r);
        bool stays = w && j->drop != r + 1;
        new_rank[r] = !stays ? -1 : j->policy == JOB_REPLACES ? r : world;
        world += stays || j->policy == JOB_REPLACES;
        if (new_rank[r] >= 0)
            held[new_rank[r]] = true;
    }
    world += more;
    j->drop = 0;
    j->round++;
    j->world = world;
    for (int i = 0; i < j->started; i++) {
        job_worker *w = &j->workers[i];
        if (w->ended || w->rank < 0)
            continue;
        w->rank = new_rank[w->rank];
        job_tell(j, w, TT__JOB_ROUND, j->round, w->rank);
    }
    for (int r = 0; r < world; r++)
        if (!held[r])
            job_start_worker(j, r);
}

/* Ask for a round in which `more` ranks join. For `happen` functions. */
static inline void job_want_more(job *j, int more) {
    j->grow = more;
    job_ask(j);
}

static inline void job_look(job *j) {
    int living, lost = j->world;
    job_listen(j);
    job_note_ends(j);
    if (j->grow)
        job_ask(j);
    bool want = job_all_want(j, &living);
    for (int r = 0; r < j->world; r++)
        lost -= job_worker_of_rank(j, r) != NULL;
    if (j->policy != JOB_NEVER_ANSWERS && living && want && (lost || j->grow)) {
        int more = j->grow;
        j->grow = 0;
        job_next_round(j, more);
    }
}

/* ---- the whole job */

static inline bool job_is_over(const job *j) {
    for (int i = 0; i < j->started; i++)
        if (!j->workers[i].ended)
            return false;
    return true;
}

static inline void job_open(job *j) {
    job_check(!tt__secret_load(&j->secret), "secret");
    job_check(!tt_store_server_new(&j->server, "127.0.0.1", 0), "store");
    job_check(!tt_tcp_store(&j->store, "127.0.0.1", tt_store_server_port(j->server)), "client");
    job_check(!tt__job_socket_name(j->name) && !tt__job_socket_listen(&j->listener, j->name), "socket");
    j->began_ms = tt__now_ms();
}

static inline void job_close(job *j) {
    for (int i = 0; i < j->called; i++)
        if (j->callers[i].fd >= 0)
            close(j->callers[i].fd);
    for (int i = 0; i < j->started; i++)
        if (j->workers[i].mapping)
            munmap(j->workers[i].mapping, j->workers[i].mapped);
    close(j->listener);
    tt_store_free(j->store);
    tt_store_server_free(j->server);
    tt__secret_wipe(&j->secret);
}

/* Run `world` workers until all have ended. False: they have not within PATIENCE_MS * 2, and were killed. */
static inline bool job_run(job *j) {
    int64_t deadline_ms = tt__deadline_ms(2 * PATIENCE_MS);
    job_open(j);
    for (int r = 0, world = j->world; r < world; r++)
        job_start_worker(j, r);
    while (!job_is_over(j) && tt__left_ms(deadline_ms)) {
        struct pollfd wake = {.fd = j->listener, .events = POLLIN};
        job_look(j);
        if (j->happen)
            j->happen(j);
        poll(&wake, 1, 1);
    }
    bool over = job_is_over(j);
    for (int i = 0; i < j->started; i++)
        if (!j->workers[i].ended) {
            kill(j->workers[i].pid, SIGKILL);
            waitpid(j->workers[i].pid, &j->workers[i].status, 0);
        }
    job_close(j);
    return over;
}

/* Begin main(): in a worker, run `worker` and end. */
static inline void elastic_job_begin(int argc, char **argv, int (*worker)(const char *mode)) {
    if (argc == 3 && !strcmp(argv[1], "worker"))
        exit(worker(argv[2]));
}

#endif
