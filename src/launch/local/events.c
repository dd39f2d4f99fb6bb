/* torchrun's events (--event-log-handler=console). */
#include "launch/local/error_files.h"
#include "launch/local/report.h"

#include "base/machine/host_name.h"
#include "base/text/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Write one event, of worker `w` or, if that is NULL, of the job. Without memory, write none. */
static void write_event(tt__streams *streams, const tt__job *job, const tt__worker *w, int i, bool succeeded,
                        int64_t seconds) {
    char host[256] = "", pid[16] = "";
    const char *state = succeeded ? "SUCCEEDED" : "FAILED";
    const char *slash = strrchr(job->file, '/'), *program = slash ? slash + 1 : job->file;
    tt__host_name(host, sizeof host);
    snprintf(pid, sizeof pid, "%d", w ? (int)w->pid : 0);
    json_t *more = json_pack("{s:i, s:o}", "group_world_size", job->nodes, "entry_point", tt__json_text(program));
    if (w && more)
        json_object_update_new(more,
                               json_pack("{s:[i], s:[i], s:[i], s:[o], s:[o]}", "local_rank", i, "role_rank",
                                         job->first_role_rank + i, "role_world_size", job->role_world, "exit_code",
                                         succeeded ? json_null() : json_integer(tt__end_code(w->status)), "worker_pid",
                                         succeeded ? json_null() : json_integer(w->pid)));
    char *more_text = more ? tt__json_dumps(more, JSON_ENSURE_ASCII) : NULL, name[64];
    char *error = w && !succeeded ? tt__error_file_text(w) : NULL;
    snprintf(name, sizeof name, "torchelastic.worker.status.%s", state);
    json_t *metadata = json_pack(
        "{s:o, s:o, s:i, s:o, s:o, s:o, s:s, s:I, s:s, s:s?, s:s?, s:i, s:n}", "run_id", tt__json_text(job->run_id),
        "global_rank", w ? json_integer(job->first_rank + i) : json_null(), "group_rank", job->node, "worker_id",
        w ? json_string(pid) : json_null(), "role", tt__json_text(job->role), "hostname", tt__json_text(host), "state",
        state, "total_run_time", (json_int_t)seconds, "rdzv_backend", job->rdzv_backend, "raw_error", error, "metadata",
        more_text, "agent_restarts", job->restarts, "duration_ms");
    json_t *event = json_pack("{s:s, s:s, s:i, s:o}", "name", name, "source", w ? "WORKER" : "AGENT", "timestamp", 0,
                              "metadata", metadata ? metadata : json_null());
    /* as torchrun's; and terminals obey some characters beyond ASCII (U+009B) */
    char *text = event ? tt__json_dumps(event, JSON_ENSURE_ASCII) : NULL;
    if (text) {
        tt__streams_begin_line(streams);
        tt__streams_write(streams, text, strlen(text));
        tt__streams_write(streams, "\n", 1);
    }
    free(text);
    free(error);
    free(more_text);
    json_decref(event);
    json_decref(more);
}

void tt__events_write(tt__streams *streams, const tt__job *job, const tt__worker *workers, const tt__moment *started,
                      bool succeeded) {
    tt__moment now = tt__moment_now();
    int64_t seconds = (now.monotonic_ns - started->monotonic_ns) / 1000000000;
    for (int i = 0; i < job->workers; i++)
        write_event(streams, job, &workers[i], i, workers[i].ended && !workers[i].status && !workers[i].exec_errno,
                    seconds);
    write_event(streams, job, NULL, -1, succeeded, seconds);
}
