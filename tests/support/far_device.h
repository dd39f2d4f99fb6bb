/* A device for tests, "far": memory that plain pointers don't reach, and kernels for what the training of an MLP needs.
 *
 * Its memory is one memfd that is mapped twice. Tensors point into the first mapping, which can't be accessed:
 * following such a pointer ends the process. The device's kernels and copies use the second mapping. It computes in f32
 * (fill, copy, matmul, sum, relu, cross entropy, SGD) and looks at i64 targets; it has no other kernel and no
 * fallback. */
#ifndef TESTS_SUPPORT_FAR_DEVICE_H
#define TESTS_SUPPORT_FAR_DEVICE_H

#include "tensor/device/device.h"

/* The device, registered at the first call. NULL and an error: there is no memory for it. A forked child shares the
 * memory with its parent: fork before the first call. */
const tt_device *far_device(void);

/* Blocks that are allocated now. */
int far_device_live_blocks(void);

/* Let the nth allocation from now on fail, once; 1: the next one; 0: none. */
void far_device_fail_nth(int n);

/* The address in the second mapping for `p`, an address in the first. */
void *far_device_near(const void *p);

/* By element type; far_kernels.c. */
extern const struct tt__kernels *const far_kernels[TT__DTYPES];

#endif
