/* Forward passes in mixed precision. */
#include "trainer/run_state.h"

tt_tensor *tt__trainer_forward(tt_trainer *t, tt_trainer_step_fn step, const tt_batch *batch) {
    if (t->a.autocast == TT_F32)
        return step(t, batch, t->a.user);
    TT_AUTOCAST(t->a.autocast);
    return step(t, batch, t->a.user);
}
