/* CIFAR's binary version: records of one label (CIFAR-10) or two (CIFAR-100: superclass, class), then the 32 x 32 reds,
 * greens and blues of an image. */
#ifndef TT_DATA_CIFAR_H
#define TT_DATA_CIFAR_H

#include <tutti/datasets.h>

enum { TT__CIFAR_IMAGE = 3 * 32 * 32 };

/* Where a label lies in a record, and what it may be. */
typedef struct tt__cifar_label {
    int labels, which; /* how many there are, and number of the one that is wanted */
    int classes;
    const char *const *names; /* of the classes */
} tt__cifar_label;

extern const tt__cifar_label tt__cifar10_label, tt__cifar100_fine, tt__cifar100_coarse;

/* Count the records in `size` bytes. TT_ERR_FORMAT: no whole number, or none. */
tt_status tt__cifar_count(const tt__cifar_label *label, const char *name, uint64_t size, int64_t *count);

/* Split `count` records into images and labels. TT_ERR_FORMAT: a label out of range. */
tt_status tt__cifar_split(const tt__cifar_label *label, const char *name, const uint8_t *records, int64_t count,
                          uint8_t *images, int64_t *labels);

#endif
