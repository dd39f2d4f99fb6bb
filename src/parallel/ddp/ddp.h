/* A DDP wrapper whose group may change. */
#ifndef TT_PARALLEL_DDP_H
#define TT_PARALLEL_DDP_H

#include <tutti/parallel.h>

/* As tt_ddp(); with .group NULL the wrapper is bound to no group yet, and nobody waits. */
tt_module *tt__ddp_make(const tt_ddp_args *args);

/* Let go of the wrapper's group, which may have failed, and bind the wrapper to `group`; NULL: to none. The ranks of
 * `group` have equal parameters and buffers, or are given them next. Collective over `group`. After a failure the
 * wrapper is bound to none. */
tt_status tt__ddp_bind(tt_module *wrapper, tt_group *group);

/* Have *known_as set to NULL when the wrapper is freed; known_as NULL: end this. wrapper NULL is allowed. */
void tt__ddp_know(tt_module *wrapper, tt_module **known_as);

#endif
