/* Who started processes with tt_spawn() dies: none of them is left. */
#include "support/process.h"

#include "base/process/proc_state.h"

#include <tutti/spawn.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

/* ---- parents, as programs of their own: this one with an argument */

/* With `stubborn`, shared memory, process 1 ignores SIGTERM, and process 2 is stopped before process 1 says it is
 * ready, in a session of its own: else the kernel wakes those that are stopped, as their process group becomes an
 * orphan. */
static int stay(int rank, void *stubborn) {
    _Atomic pid_t *stopped = stubborn;
    if (stopped && rank == 2) {
        setsid();
        *stopped = getpid();
        raise(SIGSTOP);
    }
    if (stopped && rank == 1) {
        signal(SIGTERM, SIG_IGN);
        while (!*stopped || tt__proc_state(*stopped) != 'T')
            usleep(1000);
    }
    printf("ready %d\n", rank);
    fflush(stdout);
    for (;;)
        pause();
    return 0;
}

static int stay_nested(int rank, void *arg) {
    (void)rank;
    return tt_spawn(stay, arg, 2);
}

static tt_process_context *started;

static void *start(void *stubborn) {
    tt_ignore(tt_start_processes(&started, stay, stubborn, 3));
    return NULL;
}

/* Their processes are started by a thread that has ended. */
static int of_a_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, start, NULL) || pthread_join(thread, NULL) || !started)
        return 1;
    puts("thread ended");
    fflush(stdout);
    return tt_process_context_join(started, -1, -1, NULL) != TT_OK;
}

static int returns(void) {
    start(NULL);
    return !started; /* from main(), though they run */
}

static _Atomic pid_t *shared_pid(void) {
    void *memory = mmap(NULL, sizeof(_Atomic pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int be_parent(const char *what) {
    if (!strcmp(what, "plain"))
        return tt_spawn(stay, NULL, 3) != TT_OK;
    if (!strcmp(what, "stubborn"))
        return tt_spawn(stay, shared_pid(), 3) != TT_OK;
    if (!strcmp(what, "nested"))
        return tt_spawn(stay_nested, NULL, 2) != TT_OK;
    if (!strcmp(what, "thread"))
        return of_a_thread();
    return returns();
}

/* ---- tests */

static process *begin_parent(const char *what) {
    return process_start((const char *const[]){program_invocation_name, what, NULL}, NULL, -1);
}

/* The processes have the parent's stdout, whose end says that all are gone. */
static void kill_parent(const char *what, int ready) {
    process *p = begin_parent(what);
    process_expect(p, 0, "ready", ready);
    if (!strcmp(what, "thread"))
        process_expect(p, 0, "thread ended", 1);
    kill(p->pid, SIGKILL);
    process_finish(p);
    assert_int_equal(p->code, 128 + SIGKILL);
    process_free(p);
}

static void a_killed_parent_leaves_nobody(void **state) {
    (void)state;
    kill_parent("plain", 3);
    kill_parent("thread", 3);
}

static void nor_those_that_stop_or_ignore(void **state) {
    (void)state;
    kill_parent("stubborn", 2);
}

static void nor_the_children_of_children(void **state) {
    (void)state;
    kill_parent("nested", 4);
}

static void a_parent_that_returns_leaves_nobody(void **state) {
    (void)state;
    process *p = begin_parent("returns");
    process_finish(p);
    assert_int_equal(p->code, 0);
    process_free(p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_parent_leaves_nobody),
        cmocka_unit_test(nor_those_that_stop_or_ignore),
        cmocka_unit_test(nor_the_children_of_children),
        cmocka_unit_test(a_parent_that_returns_leaves_nobody),
    };
    return argc > 1 ? be_parent(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
