/* A storm of limits and signals: ranks join, call, pass messages, save a file and leave, and at some moment one of them
 * meets a limit (descriptors, addresses, processes, a file's size, a full disk), or gets a signal that ends it, stops
 * it, or only interrupts it.
 *
 * A rank at its limit ends well or names the resource; if it failed, the others name it, else all end well. Nothing may
 * be left: no descriptor, mapping, thread, process or half a file. */
#include "security/other_user.h"
#include "support/calls.h"
#include "support/hosts.h"
#include "support/leftovers.h"
#include "support/ranks.h"

#include "base/machine/clock.h"

#include <tutti/checkpoint.h>

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    HEARTBEAT_MS = 1000,
    REMOTE_HEARTBEAT_MS = 2500,
    JOIN_MS = 4000,
    SLACK_MS = 1000,
    MAX_BYTES = 20000,
    LARGE = 100000,
    STEPS = 4,
    PLAYERS = 4,
    DESCRIPTORS_SWEPT = 24
};

/* The first five the victim does to itself. */
typedef enum fault { DESCRIPTORS, ADDRESSES, PROCESSES, FILE_SIZE, DISK, DEATH, STOP, INTERRUPTION, FAULTS } fault;
typedef enum moment { BEFORE, START, JOIN, CALLS, MESSAGES, SAVE, LEAVE, GONE } moment;

static const char *const fault_names[] = {"descriptors", "addresses", "processes", "file size",
                                          "disk",        "death",     "stop",      "interruption"};
static const char *const moment_names[] = {"before", "start", "join", "calls", "messages", "save", "leave", "gone"};

/* A rank's account of itself, in memory shared with the test. */
typedef struct testimony {
    _Atomic int moment;
    bool saved;
    tt_status status;
    int64_t returned_ns;
    char text[1200], left[200];
} testimony;

typedef struct scene {
    fault fault;
    moment moment;
    enum hosts hosts;
    int world, victim, signal, step;
    int64_t room; /* how much of what is limited is left */
    uint64_t state;
    testimony *told;            /* (world) */
    _Atomic int64_t *struck_ns; /* 0: not yet */
    _Atomic int *over;          /* nobody is struck from outside any more */
} scene;

/* What was seen of each fault; shared by the players. */
typedef struct tally {
    _Atomic long cases[FAULTS], felt[FAULTS], bad;
} tally;

static void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---- limits */

static void set_limit(int resource, rlim_t value) {
    struct rlimit limit;
    CHECK(!getrlimit(resource, &limit));
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    CHECK(!setrlimit(resource, &limit));
}

static rlim_t addresses(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Fill the disk until so many bytes are left. */
static void fill_disk(int64_t room) {
    struct statvfs disk;
    CHECK(!statvfs(".", &disk));
    int64_t excess = (int64_t)(disk.f_bavail * disk.f_frsize) - room;
    int fd = open("filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && (excess <= 0 || !posix_fallocate(fd, 0, excess)));
    close(fd);
}

static void meet_limit(const scene *scene) {
    atomic_store(scene->struck_ns, tt__now_ns());
    switch (scene->fault) {
    case DESCRIPTORS: /* opendir() takes one */
        return set_limit(RLIMIT_NOFILE,
                         (rlim_t)(count_names("/proc/self/fd", "") - 3 + scene->room % DESCRIPTORS_SWEPT));
    case ADDRESSES:
        return set_limit(RLIMIT_AS, addresses() + (rlim_t)scene->room);
    case PROCESSES:
        return set_limit(RLIMIT_NPROC, (rlim_t)(scene->room % (2 * scene->world)));
    case FILE_SIZE:
        return set_limit(RLIMIT_FSIZE, (rlim_t)scene->room);
    default:
        return fill_disk(scene->room);
    }
}

static void lift_limits(void) {
    static const int resources[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_NPROC, RLIMIT_FSIZE};
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
        set_limit(resources[i], RLIM_INFINITY);
}

/* ---- a rank */

static void come_to(const scene *scene, int rank, moment moment, int step) {
    atomic_store(&scene->told[rank].moment, moment);
    if (rank == scene->victim && scene->fault < DEATH && moment == scene->moment && step == scene->step)
        meet_limit(scene);
}

static tt_status call(const scene *scene, tt_group *group, int rank, void *send, void *recv) {
    uint64_t state = scene->state;
    tt_status status = TT_OK;
    for (int i = 0; i < STEPS && !status; i++) {
        come_to(scene, rank, CALLS, i);
        drawn drawn = drawn_call(&state, scene->world, MAX_BYTES);
        drawn_fill(&drawn, rank, scene->world, send, recv);
        status = drawn_make(group, &drawn, rank, scene->world, send, recv, NULL);
    }
    return status;
}

/* A small and a large message to the next rank, from the one before. */
static tt_status pass(const scene *scene, tt_group *group, int rank, char *send, char *recv) {
    int next = (rank + 1) % scene->world, before = (rank + scene->world - 1) % scene->world;
    tt_status status = TT_OK;
    for (int i = 0; i < STEPS && !status; i++) {
        come_to(scene, rank, MESSAGES, i);
        int64_t bytes = i % 2 ? 10 : LARGE;
        const tt_p2p_op ops[] = {tt_send_op(send, bytes, TT_U8, next, .tag = i),
                                 tt_recv_op(recv, bytes, TT_U8, before, .tag = i)};
        status = tt_batch_isend_irecv(group, ops, 2);
    }
    return status;
}

/* Save tensors full of `value`. */
static tt_status save(double value) {
    tt_tensor *x = tt_full(TT_SHAPE(LARGE), TT_F32, value), *y = tt_full(TT_SHAPE(7), TT_F32, value);
    tt_tensor *const tensors[] = {x, y};
    static const char *const names[] = {"x", "y"};
    tt_status status =
        x && y ? tt_safetensors_save("checkpoint", TT_NAMED_TENSORS(2, names, tensors), NULL, 0) : tt_last_status();
    tt_tensor_free(x);
    tt_tensor_free(y);
    return status;
}

static int64_t heartbeat_ms(const scene *scene) {
    return scene->fault != STOP ? CALM_MS : scene->hosts == HOSTS_ONE ? HEARTBEAT_MS : REMOTE_HEARTBEAT_MS;
}

static tt_status join(const scene *scene, tt_store **store, tt_group **group, int rank, int port) {
    int64_t ms = scene->moment <= JOIN ? JOIN_MS : PATIENCE_MS;
    come_to(scene, rank, START, scene->step);
    tt_status status = tt_tcp_store(store, "127.0.0.1", port, .timeout_ms = ms);
    come_to(scene, rank, JOIN, scene->step);
    if (!status)
        status = tt_init_process_group(group, .store = *store, .rank = rank, .world_size = scene->world,
                                       .timeout_ms = ms, .heartbeat_ms = heartbeat_ms(scene));
    if (!status)
        tt_group_set_timeout_ms(*group, PATIENCE_MS);
    return status;
}

static tt_status live(const scene *scene, int rank, int port) {
    tt_store *store = NULL;
    tt_group *group = NULL;
    size_t bytes = drawn_bytes(scene->world, MAX_BYTES) + LARGE;
    char *send = calloc(1, bytes), *recv = calloc(1, bytes);
    CHECK(send && recv);
    tt_status status = join(scene, &store, &group, rank, port);
    if (!status)
        status = call(scene, group, rank, send, recv);
    if (!status)
        status = pass(scene, group, rank, send, recv);
    if (!status && rank == scene->victim) {
        come_to(scene, rank, SAVE, scene->step);
        status = save(2);
        scene->told[rank].saved = !status;
    }
    if (!status) {
        come_to(scene, rank, LEAVE, scene->step);
        status = tt_barrier(group);
    }
    tt_destroy_process_group(group);
    tt_store_free(store);
    free(send);
    free(recv);
    return status;
}

/* A sanitizer that looks for leaks as its process ends, and is stopped meanwhile, may hang: it traces the process. */
static void stay_for_signals(const scene *scene) {
    for (int64_t until = tt__deadline_ms(PATIENCE_MS); !atomic_load(scene->over); sleep_us(100))
        CHECK(tt__left_ms(until));
}

static void ignore_it(int signal) { (void)signal; }

/* The kernel ends a process whose stack finds no address. */
static void have_a_stack(void) {
    volatile char stack[512 * 1024];
    for (size_t i = 0; i < sizeof stack; i += 4096)
        stack[i] = 0;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    testimony *mine = &scene->told[rank];
    (void)world;
    hosts_enter(scene->hosts, rank);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = ignore_it}, NULL); /* calls are not begun again */
    have_a_stack();
    CHECK(rank != scene->victim || save(1) == TT_OK);
    tt_clear_error();
    start_first_thread();
    holdings before = look_at_holdings();
    mine->status = live(scene, rank, tt_store_port(store));
    mine->returned_ns = tt__now_ns();
    snprintf(mine->text, sizeof mine->text, "%s", mine->status ? tt_last_error() : "");
    if (rank == scene->victim)
        lift_limits();
    compare_holdings(&before, mine->left, sizeof mine->left);
    atomic_store(&mine->moment, GONE);
    stay_for_signals(scene);
    return 0;
}

/* ---- striking from outside */

static void wait_for(const testimony *rank, moment moment) {
    for (int64_t until = tt__deadline_ms(PATIENCE_MS); atomic_load(&rank->moment) < (int)moment; sleep_us(100))
        CHECK(tt__left_ms(until));
}

static void strike(const scene *scene, const ranks *ranks, uint64_t *state) {
    const testimony *victim = &scene->told[scene->victim];
    for (int r = 0; r < scene->world && scene->fault == INTERRUPTION; r++)
        wait_for(&scene->told[r], START); /* it has its handler */
    wait_for(victim, scene->moment);
    sleep_us((int64_t)storm_below(state, 3000));
    atomic_store(scene->struck_ns, tt__now_ns());
    if (scene->fault != INTERRUPTION) {
        kill(ranks->pid[scene->victim], scene->signal);
        return;
    }
    static const int harmless[] = {SIGUSR2, SIGUSR2, SIGUSR2, SIGCHLD, SIGWINCH, SIGURG, SIGSTOP};
    for (int i = 0; i < 200 && atomic_load(&victim->moment) != GONE; i++) {
        pid_t pid = ranks->pid[storm_below(state, (size_t)scene->world)];
        kill(pid, harmless[storm_below(state, sizeof harmless / sizeof *harmless)]);
        sleep_us((int64_t)storm_below(state, 300));
        kill(pid, SIGCONT);
    }
}

static bool ended_badly(ranks *ranks, int r) {
    int end = end_of_rank(ranks, r);
    if (end)
        fprintf(stderr, "rank %d ended with %d\n", r, end);
    return end != 0;
}

/* A stopped victim stays until the others are through with it. */
static int reap(const scene *scene, ranks *ranks) {
    bool ended = scene->fault == DEATH || scene->fault == STOP;
    int bad = 0;
    for (int r = 0; r < scene->world; r++)
        if (r != scene->victim || !ended)
            bad += ended_badly(ranks, r);
    if (ended) {
        kill(ranks->pid[scene->victim], SIGKILL);
        end_of_rank(ranks, scene->victim);
    }
    tt_store_server_free(ranks->server);
    return bad;
}

/* ---- judging */

static bool names_resource(const scene *scene, const testimony *told) {
    switch (scene->fault) {
    case DESCRIPTORS:
        return strstr(told->text, "ulimit -n");
    case ADDRESSES:
        return told->status == TT_ERR_MEMORY || strstr(told->text, "memory") || strstr(told->text, "ulimit -v");
    case PROCESSES:
        return strstr(told->text, "ulimit -u");
    case FILE_SIZE:
        return strstr(told->text, "ulimit -f");
    default:
        return strstr(told->text, "No space left on device");
    }
}

/* "rank 3 ", or "ranks 1-2, 6 did not join". */
static bool names_rank(const char *text, int rank) {
    char alone[16];
    snprintf(alone, sizeof alone, "rank %d ", rank);
    const char *at = strstr(text, "ranks ");
    char *end = NULL;
    for (const char *from = at ? at + strlen("ranks ") : ""; end != from; from = *end == ',' ? end + 2 : end) {
        long first = strtol(from, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end != from && first <= rank && rank <= last)
            return true;
    }
    return strstr(text, alone) != NULL;
}

static bool in_time(const scene *scene, const testimony *told) {
    int64_t took_ms = (told->returned_ns - *scene->struck_ns) / 1000000;
    return took_ms <= (scene->moment <= JOIN ? JOIN_MS : 0) + (scene->fault == STOP ? heartbeat_ms(scene) : 0) +
                          SLACK_MS + leeway_ms();
}

static bool judged(const scene *scene, int r) {
    const testimony *told = &scene->told[r], *victim = &scene->told[scene->victim];
    bool ended = scene->fault == DEATH || scene->fault == STOP, failed = ended || victim->status;
    if (r == scene->victim)
        return ended || ((!told->status || (scene->fault != INTERRUPTION && names_resource(scene, told))) &&
                         in_time(scene, told) && !*told->left);
    if (*told->left)
        return false;
    if (!told->status) /* it may have come to the last call */
        return !failed || victim->moment >= LEAVE;
    bool about_joining = scene->moment <= JOIN && (told->status == TT_ERR_TIMEOUT || told->status == TT_ERR_NET);
    return failed && (told->status == TT_ERR_PEER || told->status == victim->status || about_joining) &&
           (names_rank(told->text, scene->victim) || (about_joining && nobody_can_be_named(told->text))) &&
           in_time(scene, told);
}

/* The file is one whole save, the last that was told to be done, and nothing lies beside it but what a kill left. */
static bool whole_file(const scene *scene) {
    const testimony *victim = &scene->told[scene->victim];
    bool killed = scene->fault == DEATH || scene->fault == STOP;
    tt_safetensors *file = NULL;
    if (killed && access("checkpoint", F_OK)) /* it did not come to its first save */
        return victim->moment == BEFORE;
    if (tt_safetensors_load(&file, "checkpoint"))
        return false;
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    float value = tt_tensor_f32(t->tensors[0])[0];
    bool whole = t->count == 2 && (value == 2 ? victim->moment >= SAVE : value == 1 && !victim->saved);
    for (int64_t i = 0; i < t->count && whole; i++)
        for (int64_t k = 0; k < tt_tensor_numel(t->tensors[i]); k++)
            whole = whole && tt_tensor_f32(t->tensors[i])[k] == value;
    tt_safetensors_free(file);
    return whole && count_names(".", "tmp-") <= killed;
}

static void explain(const scene *scene, long number) {
    const testimony *victim = &scene->told[scene->victim];
    fprintf(stderr,
            "case %ld (seed %ld): %s (signal %d, room %lld) of rank %d of %d at %s, step %d, on %s; was at %s\n",
            number, storm_number("TT_STORM_SEED", 1), fault_names[scene->fault], scene->signal, (long long)scene->room,
            scene->victim, scene->world, moment_names[scene->moment], scene->step, hosts_name(scene->hosts),
            moment_names[victim->moment]);
    for (int r = 0; r < scene->world; r++)
        fprintf(stderr, "  rank %d: %s after %.1f ms: %s%s\n", r, tt_status_name(scene->told[r].status),
                (double)(scene->told[r].returned_ns - *scene->struck_ns) / 1e6, scene->told[r].text,
                scene->told[r].left);
}

static void clear_folder(void) {
    DIR *folder = opendir(".");
    CHECK(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        unlink(entry->d_name);
    closedir(folder);
}

static void play(scene *scene, long number, uint64_t *state, tally *tally) {
    size_t size = 64 + CALLS_RANKS * sizeof(testimony);
    ranks ranks;
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    scene->struck_ns = (_Atomic int64_t *)(void *)shared;
    scene->over = (_Atomic int *)(void *)(shared + sizeof *scene->struck_ns);
    scene->told = (testimony *)(void *)(shared + 64);
    start_ranks(&ranks, scene->world, body, scene);
    if (scene->fault >= DEATH)
        strike(scene, &ranks, state);
    atomic_store(scene->over, 1);
    bool good = reap(scene, &ranks) == 0, felt = false;
    for (int r = 0; r < scene->world; r++) {
        good &= judged(scene, r);
        felt |= scene->told[r].status != TT_OK;
    }
    bool whole = whole_file(scene);
    if (!whole)
        fprintf(stderr, "the file is not one whole save, or something lies beside it\n");
    if (!good || !whole)
        explain(scene, number);
    tally->cases[scene->fault]++;
    tally->felt[scene->fault] += felt;
    tally->bad += !good || !whole || waitpid(-1, NULL, WNOHANG) != -1;
    clear_folder();
    munmap(shared, size);
}

/* ---- storms */

/* Root has no limit of processes: another user plays such a case. */
static void play_as_user(scene *scene, long number, uint64_t *state, tally *tally) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        become_user(STRANGER);
        prctl(PR_SET_DUMPABLE, 1); /* else /proc/self is root's */
        play(scene, number, state, tally);
        exit(0);
    }
    tally->bad += end_of_process(pid) != 0;
}

/* The case of this number. */
typedef scene (*scene_fn)(uint64_t *state, enum hosts hosts, long number);

/* While it joins, a rank meets every small number of descriptors, and one limit of the others. */
static scene joining_scene(uint64_t *state, enum hosts hosts, long number) {
    scene scene = {.hosts = hosts, .fault = number < DESCRIPTORS_SWEPT ? DESCRIPTORS : PROCESSES, .moment = JOIN};
    scene.world = 4;
    scene.victim = (int)(number % 2);
    scene.room = number % DESCRIPTORS_SWEPT;
    scene.state = storm_draw(state);
    return scene;
}

static scene drawn_scene(uint64_t *state, enum hosts hosts, long number) {
    (void)number;
    static const int ends[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGALRM};
    static const int stops[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    scene scene = {.hosts = hosts, .fault = (fault)storm_below(state, FAULTS)};
    scene.moment = (moment)(START + (int)storm_below(state, GONE - START));
    scene.world = 1 + (int)storm_below(state, getenv("TT_SANITIZED") ? 4 : CALLS_RANKS);
    scene.victim = (int)storm_below(state, (size_t)scene.world);
    scene.step = (int)storm_below(state, STEPS);
    scene.room = (int64_t)storm_below(state, (size_t)1 << storm_below(state, 26));
    scene.state = storm_draw(state);
    if (scene.fault == DEATH)
        scene.signal = ends[scene.state % (sizeof ends / sizeof *ends)];
    if (scene.fault == STOP)
        scene.signal = stops[scene.state % (sizeof stops / sizeof *stops)];
    return scene;
}

/* Play every PLAYERSth case, in a folder of one's own: a small disk, where one may be mounted. */
static void play_share(enum hosts hosts, scene_fn draw, long cases, int player, tally *tally) {
    char path[] = "/tmp/tutti-storm-XXXXXX";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    crash_as_programs_do();
    CHECK(mkdtemp(path));
    bool has_disk = !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
                    !mount("tutti-storm", path, "tmpfs", 0, "size=8m");
    CHECK(!chdir(path) && !chmod(".", 0777));
    for (long i = player; i < cases; i += PLAYERS) {
        uint64_t state = storm_case(i);
        scene scene = draw(&state, hosts, i);
        bool no_limit = scene.fault == ADDRESSES && getenv("TT_SANITIZED"); /* a sanitizer aborts without memory */
        if ((scene.fault == DISK && !has_disk) || no_limit)
            scene.fault = FILE_SIZE;
        if (!storm_skips(i))
            (scene.fault == PROCESSES && geteuid() == 0 ? play_as_user : play)(&scene, i, &state, tally);
    }
    CHECK(!chdir("/") && (!has_disk || !umount(path)) && !rmdir(path));
    exit(0);
}

static void storm(enum hosts hosts, scene_fn draw, long cases) {
    if (!hosts_wanted(hosts))
        skip();
    tally *tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(tally != MAP_FAILED);
    for (int player = 0; player < PLAYERS; player++) {
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid)
            play_share(hosts, draw, cases, player, tally);
    }
    long bad = 0;
    for (int status; waitpid(-1, &status, 0) > 0;)
        bad += status != 0;
    for (int f = 0; f < FAULTS; f++)
        if (tally->cases[f])
            print_message("%s, %s: %ld cases, %ld of them felt\n", hosts_name(hosts), fault_names[f], tally->cases[f],
                          tally->felt[f]);
    bad += tally->bad;
    munmap(tally, sizeof *tally);
    assert_int_equal(bad, 0);
}

static void on_one_host(void **state) {
    (void)state;
    storm(HOSTS_ONE, drawn_scene, storm_cases(12));
}

static void over_tcp(void **state) {
    (void)state;
    storm(HOSTS_TCP, drawn_scene, storm_cases(12));
}

static void on_pairs(void **state) {
    (void)state;
    storm(HOSTS_PAIRS, drawn_scene, storm_cases(12));
}

static void limits_while_joining(void **state) {
    (void)state;
    storm(HOSTS_PAIRS, joining_scene, DESCRIPTORS_SWEPT + 2);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(on_pairs),
        cmocka_unit_test(limits_while_joining),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
