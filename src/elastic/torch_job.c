#include "elastic/torch_job.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

tt__torch_job *tt__torch_job_new(void) {
    void *memory = mmap(NULL, sizeof(tt__torch_job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        tt__fail_errno(TT_ERR_MEMORY, errno, "no memory for a job of PyTorch's agents");
        return NULL;
    }
    return memory;
}

void tt__torch_job_free(tt__torch_job *torch) {
    if (torch)
        munmap(torch, sizeof *torch);
}

int tt__torch_worker_env(const tt__job *job, int i,
                         int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user) {
    const tt__torch_assignment *placed = &job->torch->placed;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"ROLE_RANK", placed->ranks.first_role_rank + i},
                   {"ROLE_WORLD_SIZE", placed->ranks.role_world},
                   {"GROUP_RANK", placed->node},
                   {"GROUP_WORLD_SIZE", placed->nodes},
                   {"MASTER_PORT", placed->master_port},
                   {"TT_FRESH_STORE", 0},
                   {"TORCHELASTIC_RESTART_COUNT", job->attempt - job->torch->changes}};
    if (!job->torch->is_placed)
        return 0;
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        char text[16];
        snprintf(text, sizeof text, "%d", numbers[n].value);
        if (set(user, numbers[n].name, text, false))
            return -1;
    }
    if (set(user, "MASTER_ADDR", placed->master_addr, false) ||
        set(user, "TORCHELASTIC_USE_AGENT_STORE", placed->agent_store ? "True" : "False", false))
        return -1;
    return 0;
}
