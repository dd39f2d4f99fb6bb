/* A job of which a rank misbehaves, for test_top.py: hang CALLS WHAT RANK. After CALLS all-reduces rank RANK does WHAT,
 * while the others call one more:
 *   stop     stops itself
 *   kill     kills itself
 *   away     never calls
 *   slices   never calls, and the others look up from their wait now and then
 *   late     comes to each of CALLS more calls some milliseconds late; then as "away"
 *   groups   waits for rank 0 in a group of the two, where rank 0 never comes
 *   serve    is called as a worker by the others, which keep 3 references each to values of its, and wait for a call
 *            that never ends
 *   finish   nothing: all end well
 * or, with a file's name for RANK:
 *   until    all make calls until the file is there, and rank 0 writes to stderr now and then
 * A rank whose call fails stays for the grace period. The all-reduces are published as steps of a training. */
#include <tutti/comm.h>
#include <tutti/job.h>
#include <tutti/rpc.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static tt_status call(tt_group *group, int times, int late_us) {
    float x[100] = {1};
    tt_status status = TT_OK;
    for (int i = 0; !status && i < times; i++) {
        if (late_us)
            nanosleep(&(struct timespec){.tv_nsec = 1000L * late_us}, NULL);
        status = tt_all_reduce(group, x, 100, TT_F32, TT_MAX);
        if (times > 1)
            tt_publish_progress(i + 1, 0.25, .steps = times, .epoch = 2, .epochs = 5, .samples = 10);
    }
    return status;
}

/* As a binding does whose language has signals of its own to look at. */
static tt_status call_in_slices(tt_group *group) {
    float x[100] = {1};
    tt_work *work;
    bool done = false;
    tt_status status = tt_all_reduce(group, x, 100, TT_F32, TT_MAX, .work = &work);
    while (!status && !done) {
        status = tt_work_wait_for(work, 100, &done);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return status;
}

static tt_status make(tt_rpc_call *served) { return tt_rpc_return(served, tt_rpc_object(malloc(1), free, "thing")); }
TT_RPC_FUNCTION(make, "() -> object");

static tt_status hold(tt_rpc_call *served) {
    tt_future *never = tt_future_new();
    tt_status status = tt_rpc_return_future(served, never);
    tt_future_free(never);
    return status;
}
TT_RPC_FUNCTION(hold, "(bytes what)");

static tt_status serve(tt_group *world, int rank) {
    char name[32], bytes[5000] = "";
    tt_rpc *rpc;
    tt_rref *made;
    snprintf(name, sizeof name, "worker%d", tt_get_rank(world));
    tt_status status = tt_rpc_init(&rpc, name, .group = world);
    for (int i = 0; !status && i < 3 && tt_get_rank(world) != rank; i++)
        status = tt_rpc_remote(&made, rpc, NULL, "make", .to_id = rank);
    if (!status && tt_get_rank(world) != rank)
        status = tt_rpc_sync(rpc, NULL, "hold", .to_id = rank, .args = TT_RPC_ARGS(tt_rpc_bytes(bytes, sizeof bytes)));
    if (status)
        return status;
    for (;;)
        pause();
}

static tt_status misbehave(tt_group *world, tt_group *pair, const char *what) {
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(what, "stop"))
        raise(SIGSTOP);
    if (!strcmp(what, "kill"))
        raise(SIGKILL);
    if (!strcmp(what, "away") || !strcmp(what, "slices") || !strcmp(what, "late"))
        for (;;)
            pause();
    if (pair)
        return tt_barrier(pair);
    return call(world, 1, 0);
}

static tt_status call_until(tt_group *world, const char *file) {
    float there = 0;
    tt_status status = TT_OK;
    for (int i = 1; !status && !there; i++) {
        there = !access(file, F_OK);
        status = tt_all_reduce(world, &there, 1, TT_F32, TT_MAX);
        tt_publish_progress(1000 + i % 1000, 0.25, .steps = 2000, .epoch = 2, .epochs = 5, .samples = 10);
        if (!(i % 100) && !tt_get_rank(world))
            fprintf(stderr, "again\n");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return status;
}

static void *do_nothing(void *unused) {
    for (;;)
        pause();
    return unused;
}

static tt_status run(tt_group *world, int calls, const char *what, int rank) {
    tt_group *pair = NULL;
    pthread_t thread;
    tt_status status = TT_OK;
    bool mine = tt_get_rank(world) == rank;
    if (!strcmp(what, "serve"))
        return serve(world, rank);
    /* With a thread that might still use the new group they wait on, rather than being told that nobody will come. */
    if (!strcmp(what, "groups") && pthread_create(&thread, NULL, do_nothing, NULL))
        return TT_ERR_SYSTEM;
    if (!strcmp(what, "groups"))
        status = tt_new_group(&pair, world, ((const int[]){0, rank}), 2);
    if (!status)
        status = call(world, calls, 0);
    if (!status && !strcmp(what, "late"))
        status = call(world, calls, mine ? 4000 : 0);
    if (!status)
        status = mine                      ? misbehave(world, pair, what)
                 : !strcmp(what, "slices") ? call_in_slices(world)
                                           : call(world, 1, 0);
    tt_destroy_process_group(pair);
    return status;
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    if (argc != 4)
        return 2;
    tt_status status = tt_init_process_group(&world, .heartbeat_ms = 100000);
    if (!status)
        status =
            !strcmp(argv[2], "until") ? call_until(world, argv[3]) : run(world, atoi(argv[1]), argv[2], atoi(argv[3]));
    if (status)
        tt_report();
    if (status) {
        signal(SIGTERM, SIG_IGN);
        sleep(100);
    }
    tt_destroy_process_group(world);
    return status != TT_OK;
}
