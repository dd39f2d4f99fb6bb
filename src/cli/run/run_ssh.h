/* tutti run --ssh, --hostfile: one command for a job on several hosts. */
#ifndef TT_CLI_RUN_SSH_H
#define TT_CLI_RUN_SSH_H

#include "cli/run/run_flags.h"

/* Has --ssh or --hostfile been given? */
bool tt__run_has_hosts(const tt__run_flags *flags);

/* Start a launcher, `tutti COMMAND`, on each of the hosts with the same flags, and wait for them. `program`: its index
 * in argv. Returns the exit code; errors are printed. */
int tt__run_on_hosts(const char *command, const tt__run_flags *flags, int argc, char **argv, int program);

#endif
