/* Lists of tensors with names. */
#ifndef TT_TENSOR_NAMED_TENSORS_H
#define TT_TENSOR_NAMED_TENSORS_H

#include <tutti/tensor.h>

/* Check a list that a program gives: made by TT_NAMED_TENSORS, with arrays; `who` begins the error. A NULL list fails
 * with the thread's last error, if there is one. With `names` each entry must have a name and a tensor. */
tt_status tt__named_tensors_check(const char *who, const tt_named_tensors *list, bool names);

#endif
