/* A job whose nodes are PyTorch's agents (torch_agent.h), as a launcher runs it: launcher_torch.c.
 *
 * Each round that begins places the workers anew. The keeper, which is forked before, and sets their environment, reads
 * that from memory that the two share: the launcher writes it before it orders a start. */
#ifndef TT_ELASTIC_TORCH_JOB_H
#define TT_ELASTIC_TORCH_JOB_H

#include "elastic/job.h"
#include "elastic/torch_agent.h"

typedef enum tt__torch_host { TT__TORCH_HOST_FOUND_OUT, TT__TORCH_HOST_YES, TT__TORCH_HOST_NO } tt__torch_host;

struct tt__torch_job {
    tt__torch_config config; /* without what the job says already: tt__launcher_torch_join() */
    tt__torch_host host;     /* does this launcher serve the rendezvous' store? */
    int changes;             /* rounds that began because nodes came or went, which are no restarts */
    tt__torch_assignment placed;
    bool is_placed;
};

/* Make one in shared memory, zeroed; NULL with TT_ERR_MEMORY. */
tt__torch_job *tt__torch_job_new(void);
void tt__torch_job_free(tt__torch_job *torch);

/* Give the worker what differs from a job of our own: as tt__worker_env(). */
int tt__torch_worker_env(const tt__job *job, int i,
                         int (*set)(void *user, const char *name, const char *value, bool only_missing), void *user);

#endif
