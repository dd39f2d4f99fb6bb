/* --dry-run. */
#ifndef TT_CLI_RUN_DRY_H
#define TT_CLI_RUN_DRY_H

#include "elastic/job.h"

/* Print on stdout what each worker of this node would get: a comment with its rank, its environment, its command, as a
 * shell could run it. Ranks are counted as if all nodes had as many workers. */
void tt__run_dry(tt__job *job);

#endif
