/* The answer to a health check: is all well with this node's part of the job, as far as its launcher knows? */
#ifndef TT_LAUNCH_LAUNCHER_HEALTH_H
#define TT_LAUNCH_LAUNCHER_HEALTH_H

#include "launch/launcher_parts.h"
#include "launch/local/health.h"

/* tt__health_look; `user` is the launcher. */
bool tt__launcher_health(void *user, char body[TT__HEALTH_BODY]);

#endif
