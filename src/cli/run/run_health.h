/* The port of `tutti run` that answers health checks. */
#ifndef TT_CLI_RUN_HEALTH_H
#define TT_CLI_RUN_HEALTH_H

#include "cli/run/run_flags.h"
#include "elastic/job.h"

/* Check --health-check-port, or TORCHELASTIC_HEALTH_CHECK_PORT. TT_ERR_INVALID: it is no port. */
tt_status tt__run_health_check(const tt__run_flags *flags);

/* Listen at it, if one is wanted, on all addresses of this host: a probe comes from outside of the container. 0: any
 * free one, which is told. TT_ERR_SYSTEM: it is taken. */
tt_status tt__run_health_listen(tt__job *job, const tt__run_flags *flags);

#endif
