/* Three processes of tt_spawn(), one of which ends as told: exit, _exit, signal, raise (an error). Prints what the
 * parent learns: index, exit code, signal, the words of the error and the process's own text, a line each; "none" if
 * nothing failed.
 *   spawn_ends HOW RANK NUMBER */
#include <tutti/spawn.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct plan {
    const char *how;
    int rank, number;
} plan;

static int end_as_told(int rank, void *arg) {
    const plan *p = arg;
    if (rank == p->rank && !strcmp(p->how, "exit"))
        exit(p->number);
    if (rank == p->rank && !strcmp(p->how, "_exit"))
        _exit(p->number);
    if (rank == p->rank && !strcmp(p->how, "raise"))
        return tt_fail(TT_ERR_IO, "can't open /data") ? 1 : 0;
    if (rank == p->rank) {
        signal(p->number, SIG_DFL);
        kill(getpid(), p->number);
    }
    while (p->number || strcmp(p->how, "exit") != 0)
        pause();
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    plan p = {.how = argv[1], .rank = atoi(argv[2]), .number = atoi(argv[3])};
    tt_process_context *context;
    if (tt_start_processes(&context, end_as_told, &p, 3)) {
        tt_report();
        return 1;
    }
    if (!tt_process_context_join(context, -1, -1, NULL))
        puts("none");
    const tt_process_failure *f = tt_process_context_failure(context);
    if (f)
        printf("%d\n%d\n%s\n%s\n%s\n", f->rank, f->exit_code, f->signal_name ? f->signal_name : "", tt_last_error(),
               f->text);
    tt_process_context_free(context);
    return 0;
}
