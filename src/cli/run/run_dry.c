#include "cli/run/run_dry.h"

#include "cli/cli.h"
#include "elastic/worker_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_variable(void *user, const char *name, const char *value, bool only_missing) {
    const tt__job *job = user;
    const char *own = only_missing ? secure_getenv(name) : NULL;
    /* Made when the job starts. */
    if (!strcmp(name, "TT_JOB_SOCKET") || (!strcmp(name, "TORCHELASTIC_ERROR_FILE") && !job->error_dir[0]))
        return 0;
    printf("  %s=", name);
    if (!strcmp(name, "MASTER_PORT") && !job->master_port)
        fputs("\"${MASTER_PORT:?is drawn when the job starts: set it to a free port}\"", stdout);
    else
        tt__write_shell_word(own ? own : value, stdout);
    fputs(" \\\n", stdout);
    return 0;
}

void tt__run_dry(tt__job *job) {
    job->node = job->number < 0 ? 0 : job->number;
    job->world = job->workers * job->nodes;
    job->first_rank = job->workers * job->node;
    for (int i = 0; i < job->workers; i++) {
        char local_rank[32];
        snprintf(local_rank, sizeof local_rank, "--%s=%d", job->local_rank_name, i);
        printf("# rank %d, local rank %d\nenv \\\n", job->first_rank + i, i);
        tt__worker_env(job, i, put_variable, job);
        fputs("  ", stdout);
        tt__write_shell_word(job->file, stdout);
        for (int k = 1; job->argv[k]; k++) {
            putchar(' ');
            tt__write_shell_word(k == job->local_rank_at ? local_rank : job->argv[k], stdout);
        }
        putchar('\n');
    }
}
