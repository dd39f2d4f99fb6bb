#include "cli/shell_word.h"
#include "cli/submit/submission.h"

#include <inttypes.h>
#include <string.h>

static void write_options(const tt__submission *s, FILE *out) {
    const struct {
        const char *name, *value;
    } texts[] = {{"time", s->time}, {"partition", s->partition}, {"account", s->account}};
    fprintf(out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%" PRId64 "\n#SBATCH --ntasks-per-node=1\n", s->name,
            s->nodes);
    if (s->cpus)
        fprintf(out, "#SBATCH --cpus-per-task=%" PRId64 "\n", s->cpus);
    else
        fputs("#SBATCH --exclusive\n", out); /* a task has one CPU else, for all ranks of a node */
    if (s->gpus)
        fprintf(out, "#SBATCH --gpus-per-node=%" PRId64 "\n", s->gpus);
    if (s->memory_gib)
        fprintf(out, "#SBATCH --mem=%" PRId64 "G\n", s->memory_gib);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value)
            fprintf(out, "#SBATCH --%s=%s\n", texts[i].name, texts[i].value);
    if (s->warning_s)
        fprintf(out, "#SBATCH --signal=TERM@%" PRId64 "\n", s->warning_s);
    fprintf(out, "#SBATCH --output=%s-%%j.out\n", s->name);
}

/* The job's number makes the port: jobs that share a node don't meet. Launchers find each other by PET_* variables,
 * torchrun's way of giving flags. */
static const char several_nodes[] =
    "# The launcher of the first node serves the store; the others prove to it that they know the secret.\n"
    "nodes=($(scontrol show hostnames \"$SLURM_JOB_NODELIST\"))\n"
    "export PET_NNODES=$SLURM_NNODES PET_MASTER_ADDR=${nodes[0]} PET_MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) "
    "PET_RDZV_ID=$SLURM_JOB_ID\n"
    "# A file on a file system that all nodes share; dd makes it anew, under a name that nobody can guess.\n"
    "random() { od -An -N\"$1\" -tx1 /dev/urandom | tr -d ' \\n'; }\n"
    "export TT_SECRET_FILE=$SLURM_SUBMIT_DIR/.tutti-$SLURM_JOB_ID-$(random 16).secret\n"
    "trap 'rm -f \"$TT_SECRET_FILE\"' EXIT\n"
    "(umask 077; random 32 | dd of=\"$TT_SECRET_FILE\" conv=excl status=none)\n";

void tt__submit_slurm(const tt__submission *s, FILE *out) {
    fputs("#!/bin/bash\n", out);
    write_options(s, out);
    fputs("\nset -eu\n", out);
    if (s->cpus)
        fputs("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # srun does not take it from sbatch\n", out);
    if (s->warning_s && !s->has_grace)
        fprintf(out, "export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=%" PRId64 "\n", tt__submission_grace_s(s));
    if (s->nodes > 1) {
        fputs(several_nodes, out);
        fputs("# A launcher on each node starts the ranks of that node.\n"
              "srun --kill-on-bad-exit=0 bash -c 'PET_NODE_RANK=$SLURM_NODEID exec \"$@\"' node",
              out);
    } else {
        fputs("srun", out);
    }
    for (char **word = s->command; *word; word++) {
        fputs(word == s->command ? " \\\n    " : " ", out);
        tt__write_shell_word(*word, out);
    }
    fputc('\n', out);
}
