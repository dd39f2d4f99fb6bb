/* Anomaly mode: where recorded calls were made, and what is said of gradients that are not numbers. */
#ifndef TT_AUTOGRAD_ANOMALY_H
#define TT_AUTOGRAD_ANOMALY_H

#include <tutti/autograd.h>

/* Where a call was made. */
typedef struct tt__call_site tt__call_site;

/* Note where the call that is being recorded was made; NULL when the mode is off, or without memory. Freed by
 * tt__pool_free(). */
tt__call_site *tt__anomaly_note(void);

/* Fail with TT_ERR_NAN, because element `at` of what the backward of a call gives its input `i` is NaN: the text names
 * the call (`op`, the `number`th that was recorded, at `site`). came_with_one: a gradient of its results had NaN
 * already. */
tt_status tt__anomaly_fail(const char *op, uint64_t number, const tt__call_site *site, int i, const tt_tensor *x,
                           int64_t at, bool came_with_one);

#endif
