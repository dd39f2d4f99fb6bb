/* Comparisons, tests, places of elements, the largest of all. */
#ifndef PARITY_COMPARE_H
#define PARITY_COMPARE_H

#include "parity_pointwise.h"

PARITY(eq, tt_eq(in[0], in[1]))
PARITY(ne, tt_ne(in[0], in[1]))
PARITY(lt, tt_lt(in[0], in[1]))
PARITY(le, tt_le(in[0], in[1]))
PARITY(gt, tt_gt(in[0], in[1]))
PARITY(ge, tt_ge(in[0], in[1]))
PARITY(eq_scalar, tt_eq_scalar(in[0], NUMBER("number", 0)))
PARITY(ne_scalar, tt_ne_scalar(in[0], NUMBER("number", 0)))
PARITY(lt_scalar, tt_lt_scalar(in[0], NUMBER("number", 0)))
PARITY(le_scalar, tt_le_scalar(in[0], NUMBER("number", 0)))
PARITY(gt_scalar, tt_gt_scalar(in[0], NUMBER("number", 0)))
PARITY(ge_scalar, tt_ge_scalar(in[0], NUMBER("number", 0)))
PARITY(any, tt_any(in[0], .dim = parity_dims(c), .keepdim = parity_bool(c, "keepdim")))
PARITY(all, tt_all(in[0], .dim = parity_dims(c), .keepdim = parity_bool(c, "keepdim")))
PARITY(argmax, tt_argmax(in[0], INT("dim", 0)))
PARITY(argsort, tt_argsort(in[0], INT("dim", 0), .descending = parity_bool(c, "descending")))
PARITY(one_hot, tt_one_hot(in[0], INT("classes", 1)))
PARITY(max_all, tt_max(in[0]))
PARITY(min_all, tt_min(in[0]))

#endif
