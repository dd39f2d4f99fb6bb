/* Clipping of gradients by their norm, as optimizers that shard need it, too. */
#ifndef TT_OPTIM_CLIP_H
#define TT_OPTIM_CLIP_H

#include <tutti/optim.h>

/* tt_clip_grad_norm_(), called `who` in errors; with `sharded` the parameters are that optimizer's slices, and the norm
 * is that of all ranks', which this rank takes part in also where it failed before: `own`, its last error. */
tt_status tt__clip_grad_norm(const char *who, const tt_clip_grad_norm_args *args, const tt_optimizer *sharded,
                             tt_status own);

#endif
