/* The flags of `tutti run` and `tutti launch`: torchrun's, in both spellings, and defaults from PET_* variables. */
#ifndef TT_CLI_RUN_FLAGS_H
#define TT_CLI_RUN_FLAGS_H

#include "cli/cli.h"

/* As typed, not yet checked; NULL = not given. A switch that is on is "1". */
typedef struct tt__run_flags {
    const char *nproc_per_node, *nnodes, *node_rank;
    const char *standalone, *master_addr, *master_port;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf;
    const char *max_restarts, *role, *settle_period, *grace_period, *trace, *log_level, *wait_notice, *secret_file,
        *store_auth, *store_memory, *wire;
    const char *log_dir, *redirects, *tee, *log_line_prefix_template, *local_ranks_filter, *duplicate_stdout_filters,
        *duplicate_stderr_filters, *logs_specs;
    const char *module, *no_python, *run_path, *help, *print_completion, *dry_run, *use_env, *local_rank_name;
    const char *local_addr, *signals_to_handle, *virtual_local_rank, *shutdown_timeout, *event_log_handler,
        *numa_binding, *bind, *monitor_interval, *start_method, *ssh, *hostfile, *health_check_port;
} tt__run_flags;

extern const tt__flag tt__run_flags_table[];

/* Read PET_* variables, then argv[1..] up to the program; *program := the index of the program in argv (argc if there
 * is none). Returns 0, or prints the error as that of `command` and returns the exit code. Underscores in the names of
 * flags are rewritten in place. */
int tt__run_flags_parse(const char *command, tt__run_flags *flags, int argc, char **argv, int *program);

/* The flag that `arg`, "--name", "--name=value" or the beginning of a name, stands for; NULL: none, or "-x3". */
const tt__flag *tt__run_flag_named(const char *arg);

#endif
