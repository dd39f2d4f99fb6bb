/* Operations on shapes, places and order: views, joins, indexing, sorting. See ops.h for what all have in common. */
#ifndef TT_TENSOR_OPS_INDEX_H
#define TT_TENSOR_OPS_INDEX_H

#include "tensor/kernels/kernels.h"

/* ---- view_dims.c: views; arguments are checked, as in view.c */

/* Dimension k of the result is dimension dims->dim[k] of x (negative: from the end), each once. */
tt_tensor *tt__permute(const char *who, const tt_tensor *x, const tt_shape *dims);

/* x repeated to `shape` by strides of 0; a size of -1 stays as it is in x. */
tt_tensor *tt__expand(const char *who, const tt_tensor *x, tt_shape shape);

/* Without dimension `dim`, of any size: entry `index` (negative: from the end) of it. */
tt_tensor *tt__select(const char *who, const tt_tensor *x, int dim, int64_t index);

/* Every `step`th entry of dimension `dim` from `start` to before `end`: negative ones count from the end, both are
 * brought into the dimension. */
tt_tensor *tt__slice(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step);

/* Without dimensions of size 1: all (`dim` NULL), or *dim if it is one / with a new one at `dim` of the result. */
tt_tensor *tt__squeeze(const char *who, const tt_tensor *x, const int *dim);
tt_tensor *tt__unsqueeze(const char *who, const tt_tensor *x, int dim);

/* ---- cat.c: new tensors, in the first one's order of memory; all of one dtype on one device, or an error */

/* One after the other along `dim` / side by side, with `dim` as a new dimension of the result. */
tt_tensor *tt__cat(const char *who, int n, tt_tensor *const *x, int dim);
tt_tensor *tt__stack(const char *who, int n, tt_tensor *const *x, int dim);

/* ---- index.c: see kernels_index.h; any layout. Indices are i64 on x's device */

/* Make a tensor of indices beside x, with undefined values. */
tt_tensor *tt__make_places(const char *who, const tt_tensor *x, tt_shape shape);

/* Are all of index places of dimension `dim` of x? Else an error names the first that is not. */
tt_status tt__check_index(const char *who, const tt_tensor *x, int dim, const tt_tensor *index);

/* And have x, index and src (NULL: none) dimensions that fit a gather or scatter, and x and src one dtype? */
bool tt__check_places(const char *who, const tt_tensor *x, int dim, const tt_tensor *index, const tt_tensor *src);

tt_status tt__index_select_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__index_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__gather_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__scatter_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__scatter_add_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);

/* ---- order.c: see kernels_index.h; any layout */

tt_status tt__triangle_out(const char *who, tt_tensor *y, const tt_tensor *x, int64_t diagonal, bool upper);
tt_status tt__cumsum_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim, bool backwards);

/* Sort along `dim`, and keep the first ones: y and indices, contiguous, have no more entries there than x. */
tt_status tt__sort_out(const char *who, tt_tensor *y, tt_tensor *indices, const tt_tensor *x, int dim, bool descending);

/* ---- resize.c: images (N,C,H,W), floats; any layout */

/* Make y of another height and width, in x's order of memory. */
tt_tensor *tt__empty_resized(const char *who, const tt_tensor *x, int64_t H, int64_t W);

tt_status tt__resize_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__resize *how);
tt_status tt__resize_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__resize *how);

/* ---- attention.c: batches of matrices, floats; any layout, y and stats contiguous */

/* Make the room for what backward needs of each row of q. */
tt_tensor *tt__attention_stats(const char *who, const tt_tensor *q);

/* Return a mask to add to scores, in the type that they have for q: of a bool mask, 0 where it is true, else -infinity.
 * The mask itself, or a new one that tt__contiguous_done() frees. */
tt_tensor *tt__additive_mask(const char *who, const tt_tensor *mask, const tt_tensor *q);

/* Does backward gain by in->y? Devices with fused kernels of 16-bit floats read it. */
bool tt__attention_keeps_y(const tt__attention *in);

tt_status tt__attention_out(const char *who, tt_tensor *y, tt_tensor *stats, const tt__attention *in);

/* d: of q, k, v; NULL: not wanted. */
tt_status tt__attention_backward_out(const char *who, tt_tensor *const d[3], const tt_tensor *stats, const tt_tensor *g,
                                     const tt__attention *in);

#endif
