/* --rdzv-backend=etcd: where etcd is, how it is spoken to, and under which address this node may serve the store. */
#ifndef TT_CLI_RUN_ETCD_H
#define TT_CLI_RUN_ETCD_H

#include "launch/job.h"

#include <limits.h>
#include <netdb.h>

/* Memory for the strings of a tt__etcd_place. */
typedef struct tt__run_etcd {
    tt__etcd_place place;
    char endpoints[4096], ca_file[PATH_MAX], cert_file[PATH_MAX], key_file[PATH_MAX];
} tt__run_etcd;

/* Read --rdzv-endpoint, one server or several separated by commas, and torchrun's names in --rdzv-conf: protocol,
 * cacert, cert, key. */
tt_status tt__run_etcd_read(tt__run_etcd *etcd, const char *endpoint, const char *conf);

/* Find the numeric address from which this node speaks to etcd. Blocks while no name of a server can be resolved, at
 * most wait_ms. */
tt_status tt__run_etcd_own_address(const tt__run_etcd *etcd, int64_t wait_ms, char own[NI_MAXHOST]);

#endif
