/* What `tutti run` and `tutti launch` share. */
#ifndef TT_CLI_RUN_H
#define TT_CLI_RUN_H

#include "cli/cli.h"

/* Run the job that the command line says. local_rank: --local-rank=N is among the program's arguments, unless --use-env
 * is given. Returns the exit code. */
int tt__run_main(const tt__command *command, bool local_rank, int argc, char **argv);

#endif
