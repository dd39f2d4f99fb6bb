/* Checks of state dicts, for who loads several objects and must not change the first if the last one fails. */
#ifndef TT_OPTIM_LOADABLE_H
#define TT_OPTIM_LOADABLE_H

#include <tutti/amp.h>

/* Would loading this state succeed? Changes nothing. The errors are those of loading. */
tt_status tt__lr_check_state(const tt_lr_scheduler *s, const tt_named_tensors *state);
tt_status tt__grad_scaler_check_state(const tt_grad_scaler *scaler, const tt_named_tensors *state);
tt_status tt__ema_check_state(const tt_ema *ema, const tt_named_tensors *state);

#endif
