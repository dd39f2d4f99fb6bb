/* What `tutti submit` prints: a batch script or a manifest, in which a launcher runs on each node. */
#ifndef TT_CLI_SUBMISSION_H
#define TT_CLI_SUBMISSION_H

#include <tutti/base.h>

#include <stdio.h>

typedef struct tt__submission {
    const char *name; /* of the job: lower-case letters, digits and "-", at most 52 of them */
    char **command;   /* "tutti", "run", ... or "torchrun", ...; ends with NULL */
    int64_t nodes;
    int64_t cpus, gpus, memory_gib; /* a node; 0: not asked for */
    int64_t warning_s;              /* from SIGTERM to the end of the time; 0: none */
    bool has_grace;                 /* the command says itself how long its ranks have from SIGTERM to SIGKILL */
    const char *time, *partition, *account; /* Slurm's; NULL: not given */
    const char *image, *name_space;         /* Kubernetes'; NULL: not given */
} tt__submission;

/* From SIGTERM to the launcher to SIGKILL to its ranks, in seconds: some of the warning are left for the end itself. */
static inline int64_t tt__submission_grace_s(const tt__submission *s) {
    return s->warning_s > 10 ? s->warning_s - 5 : s->warning_s;
}

/* Write a script for sbatch. */
void tt__submit_slurm(const tt__submission *s, FILE *out);

/* Write a manifest for kubectl apply: a Job whose pods have numbers, the Service by which they find the first, and the
 * job's Secret. Errors: TT_ERR_SYSTEM no random bytes for it. */
tt_status tt__submit_k8s(const tt__submission *s, FILE *out);

#endif
