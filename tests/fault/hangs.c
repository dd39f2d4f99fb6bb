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
 * The others wait for rank 1 in a barrier. */
#include <tutti/comm.h>
#include <tutti/job.h>

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
    if (argc != 2 || tt_init_process_group(&world))
        fail();
    bool is_it = tt_get_rank(world) == tt_get_world_size(world) - 1;
    int code = is_it ? misbehave(argv[1]) : 0;
    if (!code && tt_barrier(world))
        fail();
    tt_destroy_process_group(world);
    return code;
}
