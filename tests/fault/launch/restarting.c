/* restarting LAST [CHILD]: a rank for jobs with --max-restarts. It says "born ATTEMPT RANK PID PARENT.", joins, and
 * reduces; after the first reduction it says "up ATTEMPT RANK PID.". In attempt LAST it ends after some calls, else it
 * goes on until it fails. What it finds of an earlier attempt, among the ranks or in the store, it says and exits with
 * 3. With CHILD it leaves a process in a session of its own behind. */
#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAST_CALLS = 200, STALE = 3 };

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static void leave_child(void) {
    pid_t child = fork();
    if (child != 0)
        return;
    setsid();
    for (;;)
        pause();
}

/* Count the ranks of this attempt in the store, which begins empty. */
static tt_status count_in_store(int64_t *ranks) {
    tt_store *store;
    tt_status status = tt_tcp_store(&store, getenv("MASTER_ADDR"), number("MASTER_PORT"));
    if (!status)
        status = tt_store_add(store, "ranks that came", 1, ranks);
    tt_store_free(store);
    return status;
}

int main(int argc, char **argv) {
    int attempt = number("TORCHELASTIC_RESTART_COUNT"), rank = number("RANK"), world_size = number("WORLD_SIZE");
    if (argc < 2)
        return 2;
    printf("born %d %d %d %d.\n", attempt, rank, (int)getpid(), (int)getppid());
    fflush(stdout);
    if (argc > 2)
        leave_child();
    tt_group *world = NULL;
    int64_t ranks = 0;
    tt_status status = count_in_store(&ranks);
    if (!status)
        status = tt_init_process_group(&world);
    for (int calls = 0; !status && (attempt != atoi(argv[1]) || calls < LAST_CALLS); calls++) {
        int64_t x[2] = {1, attempt};
        status = tt_all_reduce(world, x, 2, TT_I64, TT_SUM);
        if (!status && (x[0] != world_size || x[1] != (int64_t)attempt * world_size || ranks > world_size)) {
            fprintf(stderr, "stale: attempt %d met %d of %d\n", attempt, (int)x[1], (int)ranks);
            return STALE;
        }
        if (!status && !calls) {
            printf("up %d %d %d.\n", attempt, rank, (int)getpid());
            fflush(stdout);
        }
    }
    if (status)
        tt_report();
    tt_destroy_process_group(world);
    return status ? 1 : 0;
}
