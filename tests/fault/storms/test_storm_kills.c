/* A storm of deaths: a rank is killed or stopped by some signal, aborts the group or leaves it too early, or a host is
 * cut off, at a random moment. Every survivor's call must end with an error that names who it was: after a freeze or a
 * cut within the heartbeat, else within a moment. Nothing may be left: no process, listening socket or file.
 *
 * Each case prints nothing; a storm prints how long it took survivors to learn of it. */
#include "support/calls.h"
#include "support/hosts.h"
#include "support/netlab.h"
#include "support/ranks.h"

#include "base/machine/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
    HEARTBEAT_MS = 1000,
    REMOTE_HEARTBEAT_MS = 2500,
    JOIN_MS = 4000,
    SLACK_MS = 700,
    MAX_BYTES = 200000,
    LAB_HOSTS = 4,
    EXIT_CALLS = 30
};

/* The first two and the last are done to a victim, the others it does. */
typedef enum fault { KILL, FREEZE, ABORT, LEAVE, CUT, FAULTS } fault;
typedef enum moment { START, IN_BARRIER, IN_CALLS, IDLE, EXIT, MOMENTS } moment;

static const char *const fault_names[] = {"killed", "frozen", "aborted", "left", "cut off"};
static const char *const moment_names[] = {"start", "barrier", "calls", "idle", "exit"};

/* A rank's account of itself, in memory shared with the test. */
typedef struct testimony {
    _Atomic int under_way; /* joined */
    tt_status status;
    int64_t returned_ns;
    char text[1200];
} testimony;

typedef struct scene {
    fault fault;
    int signal; /* KILL and FREEZE */
    moment moment;
    int world, victim;
    enum hosts hosts;
    const netlab *lab; /* not NULL: ranks live there, rank r on host r mod LAB_HOSTS */
    uint64_t state;
    testimony *told;            /* (world) */
    _Atomic int64_t *struck_ns; /* when it happened; shared, too */
} scene;

/* On one host a frozen rank can be seen to be stopped. Elsewhere it is only silent, which one that waits for a CPU is
 * for a while, too. */
static int64_t heartbeat_ms(const scene *scene) {
    bool silent = scene->fault == FREEZE || scene->fault == CUT;
    return scene->hosts == HOSTS_ONE && !scene->lab ? HEARTBEAT_MS : silent ? REMOTE_HEARTBEAT_MS : CALM_MS;
}

static int host_of(int rank) { return rank % LAB_HOSTS; }

/* Does the fault hit this rank? */
static bool is_victim(const scene *scene, int rank) {
    return scene->fault == CUT ? host_of(rank) == host_of(scene->victim) : rank == scene->victim;
}

static bool does_it_itself(const scene *scene) { return scene->fault == ABORT || scene->fault == LEAVE; }

/* ---- ranks */

/* Random calls, the same on all ranks, until one fails. */
static tt_status call_forever(const scene *scene, tt_group *group, int rank) {
    uint64_t state = scene->state;
    void *send = malloc(drawn_bytes(scene->world, MAX_BYTES)), *recv = malloc(drawn_bytes(scene->world, MAX_BYTES));
    tt_status status = TT_OK;
    CHECK(send && recv);
    while (!status) {
        drawn call = drawn_call(&state, scene->world, MAX_BYTES);
        drawn_fill(&call, rank, scene->world, send, recv);
        status = drawn_make(group, &call, rank, scene->world, send, recv, NULL);
    }
    free(send);
    free(recv);
    return status;
}

static void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static tt_status be_busy(const scene *scene, tt_group *group, int rank) {
    tt_status status = TT_OK;
    if (scene->moment == IDLE && is_victim(scene, rank) && scene->fault != CUT)
        for (;;)
            pause();
    if (scene->moment == IN_CALLS)
        return call_forever(scene, group, rank);
    for (int i = 0; !status && (scene->moment != EXIT || i < EXIT_CALLS); i++) {
        status = tt_barrier(group);
        if (scene->moment == IDLE) /* meanwhile nobody is in a call for most of the time */
            usleep(2000);
    }
    return status;
}

/* ---- victims that do it themselves */

typedef struct aborter {
    const scene *scene;
    tt_group *group;
    int64_t after_us;
} aborter;

static void *abort_later(void *arg) {
    const aborter *aborter = arg;
    sleep_us(aborter->after_us);
    atomic_store(aborter->scene->struck_ns, tt__now_ns());
    tt_group_abort(aborter->group, "because");
    return NULL;
}

static tt_status be_busy_and_abort(const scene *scene, tt_group *group, int rank) {
    uint64_t state = scene->state;
    aborter aborter = {scene, group, (int64_t)storm_below(&state, 4000)};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, abort_later, &aborter));
    if (scene->moment == IDLE)
        sleep_us(5000);
    tt_status status = scene->moment == IDLE ? tt_barrier(group) : be_busy(scene, group, rank);
    CHECK(!pthread_join(thread, NULL));
    return status;
}

/* A few calls of its own, whatever the others do, then it goes. */
static tt_status be_busy_and_leave(const scene *scene, tt_group *group) {
    uint64_t state = scene->state;
    tt_status status = TT_OK;
    for (size_t left = scene->moment == IN_CALLS ? 0 : storm_below(&state, 20); left && !status; left--)
        status = tt_barrier(group);
    atomic_store(scene->struck_ns, tt__now_ns());
    return status;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    testimony *mine = &scene->told[rank];
    tt_group *group = NULL;
    hosts_enter(scene->hosts, rank);
    CHECK(!scene->lab || netlab_enter(scene->lab, host_of(rank)));
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world,
                                             .timeout_ms = scene->moment == START ? JOIN_MS : PATIENCE_MS,
                                             .heartbeat_ms = heartbeat_ms(scene));
    if (!status) {
        tt_group_set_timeout_ms(group, PATIENCE_MS);
        atomic_store(&mine->under_way, 1);
        status = rank != scene->victim || scene->fault < ABORT || scene->fault == CUT ? be_busy(scene, group, rank)
                 : scene->fault == ABORT ? be_busy_and_abort(scene, group, rank)
                                         : be_busy_and_leave(scene, group);
    }
    mine->returned_ns = tt__now_ns();
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", status ? tt_last_error() : "");
    tt_destroy_process_group(group);
    if (getenv("TT_SANITIZED") && is_victim(scene, rank) && !does_it_itself(scene))
        _exit(0); /* struck while it looks for leaks, the sanitizer may hang: it traces the process */
    return 0;
}

/* ---- striking */

static void strike(scene *scene, const ranks *ranks, uint64_t *state) {
    if (scene->moment != START)
        for (int r = 0; r < scene->world; r++)
            while (!atomic_load(&scene->told[r].under_way) && !scene->told[r].returned_ns)
                sleep_us(200);
    sleep_us((int64_t)storm_below(state, scene->moment == START ? 15000 : scene->moment == EXIT ? 1500 : 10000));
    atomic_store(scene->struck_ns, tt__now_ns());
    if (scene->fault == CUT)
        assert_true(netlab_link(scene->lab, host_of(scene->victim), false));
    else
        kill(ranks->pid[scene->victim], scene->signal);
}

static bool ended_badly(ranks *ranks, int r) {
    int end = end_of_rank(ranks, r);
    if (end)
        fprintf(stderr, "rank %d ended with %d\n", r, end);
    return end != 0;
}

/* Reap everybody. A frozen victim stays until the others are through with it. */
static int reap(scene *scene, ranks *ranks) {
    int bad = 0;
    for (int r = 0; r < scene->world; r++)
        if (r != scene->victim || scene->fault >= ABORT)
            bad += ended_badly(ranks, r);
    if (scene->fault == CUT) {
        assert_true(netlab_link(scene->lab, host_of(scene->victim), true));
    } else if (!does_it_itself(scene)) {
        kill(ranks->pid[scene->victim], SIGKILL);
        end_of_rank(ranks, scene->victim);
    }
    tt_store_server_free(ranks->server);
    return bad;
}

/* ---- judging */

static bool names_rank(const char *text, int rank) {
    char alone[16];
    snprintf(alone, sizeof alone, "rank %d ", rank);
    if (strstr(text, alone))
        return true;
    for (const char *at = text; (at = strstr(at, "ranks ")); at++) { /* "ranks 1-2, 6 did not join" */
        char *end = NULL;
        for (const char *from = at + strlen("ranks "); end != from; from = *end == ',' ? end + 2 : end) {
            long first = strtol(from, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
            if (end != from && first <= rank && rank <= last)
                return true;
        }
    }
    return false;
}

/* Survivors name the victim. Where a host is cut off, each side names somebody of the other. */
static bool names_right(const scene *scene, int rank, const char *text) {
    if (scene->fault != CUT)
        return names_rank(text, scene->victim);
    for (int r = 0; r < scene->world; r++)
        if (is_victim(scene, r) != is_victim(scene, rank) && names_rank(text, r))
            return true;
    return false;
}

static int64_t limit_ms(const scene *scene) {
    bool silent = scene->fault == FREEZE || scene->fault == CUT;
    return (scene->moment == START ? JOIN_MS : 0) + (silent ? heartbeat_ms(scene) : 0) + SLACK_MS + leeway_ms();
}

static bool judged(const scene *scene, int r) {
    const testimony *told = &scene->told[r];
    int64_t took_ms = (told->returned_ns - *scene->struck_ns) / 1000000;
    if (!told->status)
        return scene->moment == EXIT;
    bool about_joining = scene->moment == START && (told->status == TT_ERR_TIMEOUT || told->status == TT_ERR_NET);
    /* Who still joins hears of an abort from those who gave up because of it. */
    tt_status right = scene->fault == ABORT && told->under_way ? TT_ERR_ABORTED : TT_ERR_PEER;
    about_joining |= scene->fault == ABORT && told->status == TT_ERR_ABORTED;
    return (told->status == right || about_joining) &&
           (names_right(scene, r, told->text) || (about_joining && nobody_can_be_named(told->text))) &&
           took_ms <= limit_ms(scene);
}

static void explain(const scene *scene, long number) {
    fprintf(stderr, "case %ld (seed %ld): rank %d of %d %s (signal %d) at %s, on %s%s\n", number,
            storm_number("TT_STORM_SEED", 1), scene->victim, scene->world, fault_names[scene->fault], scene->signal,
            moment_names[scene->moment], hosts_name(scene->hosts), scene->lab ? " in name spaces" : "");
    for (int r = 0; r < scene->world; r++)
        fprintf(stderr, "  rank %d: %s after %.1f ms: %s\n", r, tt_status_name(scene->told[r].status),
                (double)(scene->told[r].returned_ns - *scene->struck_ns) / 1e6, scene->told[r].text);
}

/* The time that the survivors took. */
typedef struct latencies {
    size_t count;
    double ms[32768];
} latencies;

static int compare_ms(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_latencies(const char *what, latencies *all) {
    if (!all->count)
        return;
    qsort(all->ms, all->count, sizeof *all->ms, compare_ms);
    print_message("%s: %zu survivors learned of it after a median of %.1f ms, "
                  "99th percentile %.1f, longest %.1f\n",
                  what, all->count, all->ms[all->count / 2], all->ms[(size_t)(0.99 * (double)(all->count - 1))],
                  all->ms[all->count - 1]);
}

static void note(const scene *scene, latencies all[FAULTS]) {
    latencies *of = &all[scene->fault];
    for (int r = 0; r < scene->world; r++)
        if ((scene->fault == CUT || r != scene->victim) && scene->told[r].status && scene->moment != START &&
            scene->moment != EXIT && of->count < sizeof of->ms / sizeof *of->ms)
            of->ms[of->count++] = (double)(scene->told[r].returned_ns - *scene->struck_ns) / 1e6;
}

static bool play(scene *scene, long number, uint64_t *state, latencies all[FAULTS]) {
    size_t size = 64 + CALLS_RANKS * sizeof(testimony);
    ranks ranks;
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    scene->struck_ns = (_Atomic int64_t *)(void *)shared;
    scene->told = (testimony *)(void *)(shared + 64);
    start_ranks(&ranks, scene->world, body, scene);
    if (!does_it_itself(scene))
        strike(scene, &ranks, state);
    bool good = reap(scene, &ranks) == 0;
    for (int r = 0; r < scene->world; r++)
        if (scene->fault == CUT || r != scene->victim)
            good &= judged(scene, r);
    if (!good)
        explain(scene, number);
    note(scene, all);
    munmap(shared, size);
    return good;
}

/* ---- what is left */

/* Listening sockets and abstract names in this network name space. In a lab nobody else has any. */
static int lines_with(const char *path, const char *what) {
    FILE *file = fopen(path, "r");
    char line[512];
    int n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        n += strstr(line, what) != NULL;
    fclose(file);
    return n;
}

static int listening(void) { return lines_with("/proc/net/tcp", " 0A ") + lines_with("/proc/net/tcp6", " 0A "); }

static int files_of_ours(void) {
    DIR *folder = opendir("/dev/shm");
    int n = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        n += strstr(entry->d_name, "tutti") != NULL;
    if (folder)
        closedir(folder);
    return n;
}

static void nothing_is_left(const netlab *lab) {
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(files_of_ours(), 0);
    for (int h = 0; lab && h < lab->hosts; h++) {
        assert_int_equal(setns(lab->space[h], CLONE_NEWNET), 0);
        assert_int_equal(listening(), 0);
        assert_int_equal(lines_with("/proc/net/unix", "@tutti"), 0);
        assert_int_equal(setns(lab->lab, CLONE_NEWNET), 0);
    }
}

/* ---- storms */

/* Where a storm takes place, and which faults there are. */
typedef struct place {
    enum hosts hosts;
    bool in_lab;
    size_t faults;
    long cases; /* of the lean form */
} place;

/* What ends a program, crashes last (a sanitizer has handlers for those); what stops it. */
static int drawn_signal(uint64_t *state, fault fault) {
    static const int ends[] = {SIGKILL, SIGTERM, SIGINT,  SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGUSR1,
                               SIGXCPU, SIGSEGV, SIGABRT, SIGBUS, SIGILL,  SIGFPE,  SIGSYS};
    static const int stops[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    const size_t crashes = 6, all = sizeof ends / sizeof *ends;
    if (fault == FREEZE)
        return stops[storm_below(state, sizeof stops / sizeof *stops)];
    return fault == KILL ? ends[storm_below(state, getenv("TT_SANITIZED") ? all - crashes : all)] : 0;
}

static long storm(const place *place, const netlab *lab, latencies all[FAULTS]) {
    /* What gates stays small: the largest worlds take ten times as long where CPUs are few. */
    const size_t ranks = getenv("TT_STORM_CASES") && !getenv("TT_SANITIZED") ? CALLS_RANKS : CALLS_WORLD;
    long cases = storm_cases(place->cases), bad = 0;
    for (long i = 0; i < cases; i++) {
        uint64_t state = storm_case(i);
        scene scene = {.hosts = place->hosts, .lab = lab, .moment = (moment)(i % MOMENTS)};
        /* A crash is quickly told, so there are more of them. */
        scene.fault = storm_below(&state, 2) ? KILL : (fault)(1 + storm_below(&state, place->faults - 1));
        scene.signal = drawn_signal(&state, scene.fault);
        scene.world = 2 + (int)storm_below(&state, ranks - 1);
        scene.victim = (int)storm_below(&state, (size_t)scene.world);
        scene.state = storm_draw(&state);
        if (scene.fault >= ABORT && scene.moment == START) /* there is no group yet to abort */
            scene.moment = IN_CALLS;
        if (!storm_skips(i))
            bad += !play(&scene, i, &state, all);
    }
    return bad;
}

static void storm_at(const place *place) {
    netlab lab;
    if (!hosts_wanted(place->in_lab ? HOSTS_ALONE : place->hosts))
        skip();
    latencies *all = calloc(FAULTS, sizeof *all);
    assert_non_null(all);
    const char *why = place->in_lab ? netlab_open(&lab, LAB_HOSTS) : NULL;
    if (why) {
        print_message("skipped: %s\n", why);
        free(all);
        skip();
    }
    long bad = storm(place, place->in_lab ? &lab : NULL, all);
    nothing_is_left(place->in_lab ? &lab : NULL);
    for (int f = 0; f < FAULTS; f++)
        print_latencies(fault_names[f], &all[f]);
    if (place->in_lab)
        netlab_close(&lab);
    free(all);
    assert_int_equal(bad, 0);
}

static void on_one_host(void **state) {
    (void)state;
    storm_at(&(place){HOSTS_ONE, false, CUT, 20});
}

static void over_tcp(void **state) {
    (void)state;
    storm_at(&(place){HOSTS_TCP, false, CUT, 12});
}

static void on_pairs(void **state) {
    (void)state;
    storm_at(&(place){HOSTS_PAIRS, false, CUT, 12});
}

static void on_four_hosts(void **state) {
    (void)state;
    storm_at(&(place){HOSTS_ONE, true, FAULTS, 15});
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(on_pairs),
        cmocka_unit_test(on_four_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
