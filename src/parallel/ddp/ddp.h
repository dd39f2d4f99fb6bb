/* A DDP wrapper whose group may change. */
#ifndef TT_PARALLEL_DDP_H
#define TT_PARALLEL_DDP_H

#include <tutti/parallel.h>

/* As tt_ddp(); with .group NULL the wrapper is bound to no group yet, and nobody waits. */
tt_module *tt__ddp_make(const tt_ddp_args *args);

/* Let go of the wrapper's group, which may have failed, and bind it to this one, whose ranks have, or are about to be
 * given, equal parameters and buffers; NULL: to none. Collective over `group`. After a failure it is bound to none. */
tt_status tt__ddp_bind(tt_module *wrapper, tt_group *group);

/* Have *known_as set to NULL when the wrapper is freed; known_as NULL: not any more. wrapper NULL is allowed. */
void tt__ddp_know(tt_module *wrapper, tt_module **known_as);

#endif
