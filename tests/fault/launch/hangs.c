/* Ranks with timers, for test_timers.py: hangs WHAT. Rank 1 (or 0, of a job of one) does WHAT:
 *   named     sets a timer "validation" of 0.3 s, and hangs in a function
 *   nested    sets one of 100 s, in it one without a name, by TT_EXPIRES, of 0.3 s, and hangs
 *   thread    another thread sets one of 0.3 s and hangs in a function, the main thread waits for it
 *   child     forks; the child sets one of 0.3 s and hangs; the parent then ends with what the child got
 *   stopped   sets one of 0.3 s and stops itself
 *   deaf      the same as named, with SIGTERM ignored
 *   ended     sets and ends timers of 3 s, from several threads at once, waits for longer, and ends well
 *   many      sets one more than a process may have, which fails, and ends well
 *   alone     sets timers where nobody watches
 *   once      in the first attempt as named; in the second it ends well
 *   family    starts as many children as FAMILY says, which set timers, and then asks the store; ends well
 * The others wait for rank 1 in a barrier.
 *   kept      rank 0 sets a timer of AFTER_S seconds, by tt_expires() or in torchrun's pipe (WAY=pipe); rank 1 is lost,
 *             and all recover; then they hang */
#include <tutti/comm.h>
#include <tutti/elastic.h>
#include <tutti/job.h>
#include <tutti/store.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT_MS = 300, LONG_MS = 3000 };

static _Noreturn void fail(void) {
    tt_report();
    exit(98);
}

__attribute__((noinline)) static void hang_here(void) {
    for (;;)
        pause();
}

static void hang_named(void) {
    int timer;
    if (tt_expires(&timer, SHORT_MS, .name = "validation")) /* SET HERE */
        fail();
    hang_here();
    tt_expires_end(timer);
}

static void *hang_in_thread(void *unused) {
    (void)unused;
    hang_named();
    return NULL;
}

static void hang_nested(void) {
    int outer;
    if (tt_expires(&outer, 100000, .name = "outer"))
        fail();
    { TT_EXPIRES(1000000); }
    TT_EXPIRES(SHORT_MS); /* NESTED HERE */
    hang_here();
}

static void *end_timers(void *unused) {
    int timers[10], more;
    (void)unused;
    for (int round = 0; round < 100; round++) {
        TT_EXPIRES(LONG_MS, .name = "scope");
        for (int i = 0; i < 10; i++)
            if (tt_expires(&timers[i], LONG_MS))
                fail();
        for (int i = 0; i < 10; i++) {
            tt_expires_end(timers[i]);
            tt_expires_end(timers[i]); /* once more: nothing, nor to another one in its place */
        }
        if (tt_expires(&more, LONG_MS))
            fail();
        tt_expires_end(timers[0]);
        tt_expires_end(more);
    }
    return NULL;
}

static int end_all(void) {
    pthread_t threads[4];
    int timer;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, end_timers, NULL))
            return 97;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    if (tt_expires(&timer, LONG_MS))
        fail();
    pid_t child = fork();
    if (!child) {
        tt_expires_end(timer); /* the parent's: it must go on */
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    tt_expires_end(timer);
    usleep(1200 * LONG_MS);
    return status;
}

static int set_many(void) {
    int timers[65];
    for (int i = 0; i < 64; i++)
        if (tt_expires(&timers[i], 1000000) || !timers[i])
            return 94;
    if (tt_expires(&timers[64], 1000000) != TT_ERR_UNSUPPORTED || timers[64])
        return 93;
    tt_expires_end(timers[7]);
    return tt_expires(&timers[64], 1000000) || !timers[64] ? 92 : 0;
}

static int set_alone(void) {
    int timer = 5;
    TT_EXPIRES(1, .name = "scope");
    if (tt_expires(&timer, 1, .name = "alone"))
        fail();
    tt_expires_end(timer);
    return timer || tt_expires(&timer, 0) != TT_ERR_INVALID || tt_expires(NULL, 1) != TT_ERR_INVALID ? 91 : 0;
}

static int hang_child(void) {
    int status = 0;
    pid_t child = fork();
    if (!child)
        hang_named();
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 50 + WTERMSIG(status) : 96;
}

/* ---- descriptors of the launcher */

static void be_of_family(int told, int ends) {
    char byte = 0;
    int timer;
    if (tt_expires(&timer, 1000000) || write(told, &byte, 1) != 1)
        fail();
    while (read(ends, &byte, 1) > 0)
        ;
    _exit(0);
}

/* A client of the store that comes now is served. */
static tt_status ask_store(void) {
    tt_store *store;
    tt_status status = tt_tcp_store(&store, getenv("MASTER_ADDR"), atoi(getenv("MASTER_PORT")));
    if (!status)
        status = tt_store_set(store, "family", "there", 5);
    tt_store_free(store);
    return status;
}

static int have_family(void) {
    int children = atoi(getenv("FAMILY")), told[2], ends[2];
    char byte;
    if (pipe(told) || pipe(ends))
        return 90;
    for (int i = 0; i < children; i++)
        if (!fork()) {
            close(ends[1]);
            be_of_family(told[1], ends[0]);
        }
    for (int i = 0; i < children; i++)
        if (read(told[0], &byte, 1) != 1)
            return 89;
    if (ask_store())
        fail();
    close(ends[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}

/* ---- recovery */

/* As torchrun's FileTimerClient. */
static void write_request(double after_s) {
    struct timespec now;
    FILE *pipe = fopen(getenv("TORCHELASTIC_TIMER_FILE"), "w");
    clock_gettime(CLOCK_REALTIME, &now);
    if (!pipe ||
        fprintf(pipe,
                "{\"version\": 1, \"pid\": %d, \"scope_id\": \"kept\", \"expiration_time\": %.3f, \"signal\": 9}\n",
                (int)getpid(), (double)now.tv_sec + (double)now.tv_nsec / 1e9 + after_s) < 0 ||
        fclose(pipe))
        exit(88);
}

static void set_kept_timer(void) {
    int timer;
    double after_s = atof(getenv("AFTER_S"));
    if (!strcmp(getenv("WAY"), "pipe"))
        write_request(after_s);
    else if (tt_expires(&timer, (int64_t)(after_s * 1000), .name = "kept"))
        fail();
}

static _Noreturn void lose_one(void) {
    tt_elastic *e;
    int64_t step = 0;
    if (tt_elastic_new(&e) || tt_elastic_add(e, "step", &step, sizeof step) || tt_elastic_restore(e))
        fail();
    int rank = tt_get_rank(tt_elastic_group(e));
    if (!step) {
        if (!rank)
            set_kept_timer();
        step = 1;
        if (tt_barrier(tt_elastic_group(e)) || tt_elastic_commit(e))
            fail();
        if (rank)
            raise(SIGUSR2);
        if (!tt_barrier(tt_elastic_group(e)) || tt_elastic_restore(e))
            fail();
    }
    printf("rank %d has recovered\n", rank);
    fflush(stdout);
    hang_here();
    exit(87);
}

static int misbehave(const char *what) {
    pthread_t thread;
    const char *attempt = getenv("TORCHELASTIC_RESTART_COUNT");
    if (!strcmp(what, "ended"))
        return end_all();
    if (!strcmp(what, "alone"))
        return set_alone();
    if (!strcmp(what, "many"))
        return set_many();
    if (!strcmp(what, "once") && attempt && strcmp(attempt, "0") != 0)
        return 0;
    if (!strcmp(what, "child"))
        return hang_child();
    if (!strcmp(what, "family"))
        return have_family();
    if (!strcmp(what, "nested"))
        hang_nested();
    if (!strcmp(what, "thread") && !pthread_create(&thread, NULL, hang_in_thread, NULL))
        pthread_join(thread, NULL);
    if (!strcmp(what, "deaf"))
        signal(SIGTERM, SIG_IGN);
    if (!strcmp(what, "stopped")) {
        int timer;
        if (tt_expires(&timer, SHORT_MS, .name = "validation"))
            fail();
        raise(SIGSTOP);
    }
    hang_named();
    return 95;
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    if (argc == 2 && !strcmp(argv[1], "kept"))
        lose_one();
    if (argc != 2 || tt_init_process_group(&world))
        fail();
    bool is_it = tt_get_rank(world) == tt_get_world_size(world) - 1;
    int code = is_it ? misbehave(argv[1]) : 0;
    if (!code && tt_barrier(world))
        fail();
    tt_destroy_process_group(world);
    return code;
}
