/* Which of a list of classes are a rank's own. */
#ifndef TT_PARALLEL_TENSOR_PARALLEL_OWN_CLASSES_H
#define TT_PARALLEL_TENSOR_PARALLEL_OWN_CLASSES_H

#include <tutti/autograd.h>
#include <tutti/comm.h>

/* Tensors on the device of the classes, each the one reference of this struct. */
typedef struct tt__own_classes {
    tt_tensor *place;  /* (B,1) i64: its number among the rank's own; 0 for those of others */
    tt_tensor *is_own; /* (B,1): 1 where it is one of the rank's own, else 0 */
    tt_tensor *counts; /* (B,1): 0 where it is `ignore`, else 1 */
    int64_t counted;   /* how many are not `ignore` */
} tt__own_classes;

/* What is known of a list of classes. */
typedef struct tt__class_list {
    const tt_tensor *target; /* i64, any shape: B classes */
    int64_t classes;         /* of each rank, in turn */
    const tt_group *group;
    tt_dtype dtype;        /* of is_own and counts */
    const int64_t *ignore; /* NULL: none */
} tt__class_list;

/* False, and an error that begins with `who`: no integers, one out of range, no memory. tt__own_classes_end() must
 * follow in any case. */
bool tt__own_classes_find(const char *who, tt__own_classes *own, const tt__class_list *list);
void tt__own_classes_end(tt__own_classes *own);

/* x where `mask` is 1, and 0 elsewhere, also of an x that is not finite there, which a product would not do; with
 * broadcasting, recorded. */
tt_tensor *tt__only_where(tt_tensor *mask, tt_tensor *x);

#endif
