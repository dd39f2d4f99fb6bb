/* Where a job's ranks and nodes meet: --master-addr, --rdzv-backend, --rdzv-endpoint, --rdzv-conf. */
#ifndef TT_CLI_RUN_MEETING_H
#define TT_CLI_RUN_MEETING_H

#include "cli/run/rdzv_conf.h"
#include "cli/run/run_etcd.h"
#include "cli/run/run_flags.h"
#include "launch/job.h"

#include <netdb.h>

/* Memory for the strings of a job. */
typedef struct tt__run_meeting {
    char host[NI_MAXHOST], bind[NI_MAXHOST], run_id[40];
    tt__rdzv_conf conf;
    tt__run_etcd etcd;
} tt__run_meeting;

/* Find where the ranks meet, for job->min_nodes and max_nodes. Blocks while the name of another host can't be resolved,
 * as long as other nodes are waited for. Errors: TT_ERR_INVALID, TT_ERR_UNSUPPORTED. */
tt_status tt__run_find_meeting_place(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags);

/* Do several nodes meet at an address of this host's loopback? Nodes on other hosts find their own one there. */
bool tt__run_meets_on_loopback(const tt__job *job);

#endif
