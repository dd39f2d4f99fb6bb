/* --rdzv-backend=etcd: where etcd is, how it is spoken to, and under which address this node may serve the store. */
#ifndef TT_CLI_RUN_ETCD_H
#define TT_CLI_RUN_ETCD_H

#include "cli/run/rdzv_conf.h"
#include "launch/job.h"

#include <netdb.h>

typedef struct tt__run_etcd {
    tt__etcd_place place; /* the names of files are those of the tt__rdzv_conf */
    char endpoints[4096];
} tt__run_etcd;

/* Fill `etcd` from --rdzv-endpoint, one server or several separated by commas (NULL: not given, an error), and from
 * `conf`, which must outlive it. */
tt_status tt__run_etcd_read(tt__run_etcd *etcd, const char *endpoint, const tt__rdzv_conf *conf);

/* Find the numeric address from which this node speaks to etcd. Blocks while no name of a server can be resolved, at
 * most wait_ms. */
tt_status tt__run_etcd_own_address(const tt__run_etcd *etcd, int64_t wait_ms, char own[NI_MAXHOST]);

#endif
