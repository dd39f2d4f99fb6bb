#include "launch/local/worker_env.h"

#include "base/process/threads.h"
#include "launch/local/file_timers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct setter {
    int (*set)(void *user, const char *name, const char *value, bool only_missing);
    void *user;
} setter;

static int put_env_text(const setter *s, const char *name, const char *value) {
    return s->set(s->user, name, value, false) ? -1 : 0;
}

static int put_env_number(const setter *s, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return put_env_text(s, name, text);
}

/* Give the worker entry `i` of the list of devices in the variable, or number `i`. */
static int put_env_device(const setter *s, const char *name, const char *list, int i) {
    char own[128];
    if (!list)
        return put_env_number(s, name, i);
    for (int k = 0; k < i && *list; k++)
        list += strcspn(list, ",") + (list[strcspn(list, ",")] == ',');
    list += strspn(list, " ");
    snprintf(own, sizeof own, "%.*s", (int)strcspn(list, ", "), list);
    return put_env_text(s, name, own);
}

/* A worker that sees nothing but its own device, as number 0: --virtual-local-rank. */
static int put_env_devices(const setter *s, int i) {
    const char *cuda = getenv("CUDA_VISIBLE_DEVICES"), *hip = getenv("HIP_VISIBLE_DEVICES");
    bool has_hip = hip && *hip;
    if (put_env_device(s, "CUDA_VISIBLE_DEVICES", has_hip ? hip : cuda, i))
        return -1;
    return has_hip ? put_env_device(s, "HIP_VISIBLE_DEVICES", hip, i) : 0;
}

int tt__worker_env(const tt__job *job, int i,
                   int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user) {
    const setter s = {set, user};
    int rank = job->first_rank + i, failed = 0;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"RANK", rank},
        {"LOCAL_RANK", job->virtual_local_rank ? 0 : i},
        {"ROLE_RANK", rank},
        {"GROUP_RANK", job->node},
        {"WORLD_SIZE", job->world},
        {"LOCAL_WORLD_SIZE", job->workers},
        {"ROLE_WORLD_SIZE", job->world},
        {"GROUP_WORLD_SIZE", job->nodes},
        {"MASTER_PORT", job->master_port},
        {"TORCHELASTIC_RESTART_COUNT", job->restarts},
        {"TORCHELASTIC_MAX_RESTARTS", job->max_restarts},
        {"TT_ROUND", job->recovery},
        {"TT_FRESH_STORE", 1}, /* in each attempt, and nodes count alike */
    };
    char error_file[PATH_MAX];
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        failed |= put_env_number(&s, numbers[n].name, numbers[n].value);
    const char *const texts[][2] = {
        {"MASTER_ADDR", job->master_addr},
        {"ROLE_NAME", job->role},
        {"TORCHELASTIC_RUN_ID", job->run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", tt__job_error_file(job, i, error_file)},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", job->signal_names},
        {"TT_JOB_SOCKET", job->socket_name},
    };
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        failed |= put_env_text(&s, texts[n][0], texts[n][1]);
    if (tt__file_timers_path(job, error_file))
        failed |= put_env_text(&s, "TORCHELASTIC_TIMER_FILE", error_file);
    failed |= set(user, "NCCL_ASYNC_ERROR_HANDLING", "1", true);
    failed |= set(user, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", true);
    if (job->virtual_local_rank)
        failed |= put_env_devices(&s, i);
    if (job->omp_threads)
        failed |= put_env_number(&s, "OMP_NUM_THREADS", job->omp_threads);
    if (!tt__openmp_waits_as_told())
        failed |= put_env_text(&s, TT__OPENMP_SPINS_VARIABLE, TT__OPENMP_SPINS);
    return failed ? -1 : 0;
}
