/* State dicts: making one of names and tensors, which the dict borrows or owns, and checking one that is to be
 * loaded. */
#ifndef TT_OPTIM_DICT_H
#define TT_OPTIM_DICT_H

#include <tutti/amp.h>
#include <tutti/nn.h>

typedef struct tt__dict {
    const char *who; /* the call that makes it: begins errors */
    tt_named_tensors list;
    size_t count, own_count;
    char **names;
    tt_tensor **tensors, **own;
} tt__dict;

/* End what `dict` was and make room for entries. On failure it is empty. */
tt_status tt__dict_init(tt__dict *dict, const char *who, size_t room);
void tt__dict_free(tt__dict *dict);

/* Add a tensor: borrowed / the dict's own from now on (NULL: its error is passed on). */
TT_PRINTF(3, 4) tt_status tt__dict_add(tt__dict *dict, tt_tensor *x, const char *format, ...);
TT_PRINTF(3, 4) tt_status tt__dict_add_own(tt__dict *dict, tt_tensor *x, const char *format, ...);

/* Return the list of what was added, borrowed from the dict. If `status` is an error, free the dict and return NULL. */
const tt_named_tensors *tt__dict_finish(tt__dict *dict, tt_status status);

/* Take x out of its scope for an optimizer, a scheduler or an average that holds it. Returns x; NULL and an error on
 * failure; NULL for NULL. */
tt_tensor *tt__optim_hold(tt_tensor *x);

/* For a caller that loads several objects, and must not change the first if the last one fails: would loading this
 * state succeed? Changes nothing. The errors are those of loading. */
tt_status tt__lr_check_state(const tt_lr_scheduler *s, const tt_named_tensors *state);
tt_status tt__grad_scaler_check_state(const tt_grad_scaler *scaler, const tt_named_tensors *state);
tt_status tt__ema_check_state(const tt_ema *ema, const tt_named_tensors *state);

#endif
