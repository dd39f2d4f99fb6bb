/* --rdzv-conf NAME=VALUE,...: settings of the rendezvous, under torchrun's names. */
#ifndef TT_CLI_RUN_RDZV_CONF_H
#define TT_CLI_RUN_RDZV_CONF_H

#include <tutti/base.h>

#include <stdint.h>

typedef struct tt__rdzv_conf {
    int64_t join_ms;                            /* how long to wait for other nodes */
    int64_t last_call_ms;                       /* how long nobody may have come when fewer nodes begin than might */
    int64_t heartbeat_ms;                       /* a node that is silent for so long is lost */
    int64_t rejoin_ms;                          /* how long a node that was cut off looks for the job */
    int is_host;                                /* whether this node serves the store: 1, 0, or -1: not given */
    const char *protocol;                       /* NULL: not given */
    const char *ca_file, *cert_file, *key_file; /* of etcd; NULL: not given */
    char text[8192];                            /* what the strings above point into */
} tt__rdzv_conf;

/* Read the value of the flag; NULL: it was not given. Names that are not known are skipped: they are for back ends of
 * torchrun's that are not here. Of a name that comes twice the last counts. Errors: TT_ERR_INVALID. */
tt_status tt__rdzv_conf_read(tt__rdzv_conf *conf, const char *text);

#endif
