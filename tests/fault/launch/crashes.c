/* A job of which a rank crashes, for test_crashes.py: crashes WHAT RANK [RANK]. After two all-reduces the ranks named
 * do WHAT, while the others call one more, for CALLS_MS at most:
 *   null      writes where nothing is, in a function that another one calls
 *   call      calls a function that is not there
 *   deep      uses up the stack of its main thread
 *   abort     calls abort()
 *   sent      gets SIGSEGV from elsewhere
 *   thread    writes where nothing is in another thread than the one that joined
 *   handler   as null, with a handler of the program's own, which ends it with exit code 7
 *   fork      has a child that writes where nothing is, and ends with exit code 9
 *   leave     destroys its group, then as null
 *   unheard   as null, while the launcher is stopped, until the rank has ended
 *   exit      ends with exit code 3
 *   asleep    ends its main thread by pthread_exit(), while another one sleeps
 *   goes_on   the same, while another one makes the call, later than a heartbeat
 *   stopped   the same, while another one stops the process
 *   orphan    the same, while another one writes where nothing is
 *   spin      goes round in a function, and calls nothing
 *   differ    calls what the others don't, and ends with exit code 4, after calls that have the library make others */
#include <tutti/comm.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

static int *volatile nowhere;

/* The marker below says which line the report must name. */
NOINLINE static int write_nowhere(int value) {
    *nowhere = value; /* CRASHES HERE */
    return value + 1;
}

NOINLINE static int reach_nowhere(int value) { return write_nowhere(value) + 1; }

static volatile bool goes_on = true;

NOINLINE static int use_up(volatile char *above) {
    volatile char room[4096];
    room[0] = above[0];
    return (goes_on ? use_up(room) : 0) + room[0];
}

static void *crash_elsewhere(void *unused) {
    (void)unused;
    reach_nowhere(3);
    return NULL;
}

NOINLINE static void spin_here(void) {
    while (goes_on)
        ;
}

static bool main_thread_has_ended(void) {
    char text[512] = "";
    FILE *stat = fopen("/proc/self/stat", "re");
    if (!stat)
        return false;
    if (!fgets(text, sizeof text, stat))
        text[0] = 0;
    fclose(stat);
    return strstr(text, ") Z ");
}

static void await_main_threads_end(void) {
    while (!main_thread_has_ended())
        usleep(1000);
}

static void *sleep_on(void *unused) {
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void *stop_late(void *unused) {
    await_main_threads_end();
    raise(SIGSTOP);
    return unused;
}

static void *crash_late(void *unused) {
    await_main_threads_end();
    return crash_elsewhere(unused);
}

static void *call_late(void *world) {
    float x[100] = {1};
    await_main_threads_end();
    usleep(1500000);
    if (tt_all_reduce(world, x, 100, TT_F32, TT_SUM))
        _exit((tt_report(), 94));
    tt_destroy_process_group(world);
    _exit(0);
}

static void leave_to(void *(*thread_does)(void *), tt_group *world) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_does, world))
        _exit(93);
    pthread_exit(NULL);
}

static void own_handler(int sig) {
    (void)sig;
    _exit(7);
}

/* Have a grandchild wake the launcher when this process is gone. */
static void stop_launcher(void) {
    int ends[2];
    char byte;
    const char *name = getenv("TT_JOB_SOCKET"), *slash = name ? strchr(name, '/') : NULL;
    pid_t launcher = slash ? (pid_t)atoi(slash + 1) : 0;
    if (!launcher || pipe(ends))
        _exit(99);
    if (!fork()) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) < 0)
            _exit(1);
        kill(launcher, SIGCONT);
        _exit(0);
    }
    close(ends[0]);
    kill(launcher, SIGSTOP);
}

static int misbehave(const char *what, tt_group *world) {
    pthread_t thread;
    char top = 1;
    if (!strcmp(what, "exit"))
        return 3;
    if (!strcmp(what, "asleep"))
        leave_to(sleep_on, world);
    if (!strcmp(what, "goes_on"))
        leave_to(call_late, world);
    if (!strcmp(what, "stopped"))
        leave_to(stop_late, world);
    if (!strcmp(what, "orphan"))
        leave_to(crash_late, world);
    if (!strcmp(what, "spin"))
        spin_here();
    if (!strcmp(what, "differ"))
        return tt_barrier(world) ? (tt_report(), 4) : 5;
    if (!strcmp(what, "deep"))
        return use_up(&top);
    if (!strcmp(what, "call"))
        return ((int (*)(int))(void *)nowhere)(2);
    if (!strcmp(what, "abort"))
        abort();
    if (!strcmp(what, "sent"))
        kill(getpid(), SIGSEGV);
    if (!strcmp(what, "handler"))
        signal(SIGSEGV, own_handler);
    if (!strcmp(what, "leave"))
        tt_destroy_process_group(world);
    if (!strcmp(what, "unheard"))
        stop_launcher();
    if (!strcmp(what, "thread") && !pthread_create(&thread, NULL, crash_elsewhere, NULL))
        pthread_join(thread, NULL);
    if (!strcmp(what, "fork")) {
        pid_t child = fork();
        int status = 0;
        if (!child)
            _exit(reach_nowhere(2));
        waitpid(child, &status, 0);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 9 : 10;
    }
    return reach_nowhere(1);
}

/* Calls in whose course the library makes further calls on the same group. */
static tt_status call_in_parts(tt_group *world) {
    tt_group *part;
    void *shared;
    tt_status status = tt_new_group(&part, world, ((int[]){0, 1}), 2);
    if (!status)
        status = tt_group_alloc(&shared, part, 100000);
    if (!status)
        status = tt_group_alloc(&shared, world, 100000);
    if (!status)
        status = tt_group_free(world, shared);
    tt_destroy_process_group(part);
    return status;
}

int main(int argc, char **argv) {
    tt_group *world;
    float x[512] = {1};
    bool crashes = false;
    const char *timeout = getenv("CALLS_MS"), *heartbeat = getenv("HEARTBEAT_MS");
    if (argc < 3 || tt_init_process_group(&world, .timeout_ms = timeout ? atoi(timeout) : 0,
                                          .heartbeat_ms = heartbeat ? atoi(heartbeat) : 0))
        return tt_report(), 98;
    for (int i = 2; i < argc; i++)
        crashes = crashes || atoi(argv[i]) == tt_get_rank(world);
    if (!strcmp(argv[1], "differ") && call_in_parts(world))
        return tt_report(), 95;
    if (tt_all_reduce(world, x, 512, TT_F32, TT_SUM) || tt_all_reduce(world, x, 256, TT_F32, TT_MAX))
        return tt_report(), 97;
    if (crashes)
        _exit(misbehave(argv[1], world)); /* as it is: a leak is no matter here */
    if (tt_all_reduce(world, x, 100, TT_F32, TT_SUM))
        return tt_report(), 96;
    tt_destroy_process_group(world);
    return 0;
}
