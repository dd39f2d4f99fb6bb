/* Shapes, places and order as cases for gradcheck.h; the names are those of tests/vectors/torch-index.json. */
#ifndef OP_CASES_INDEX_H
#define OP_CASES_INDEX_H

#include "op_checks.h"

/* ---- views */

static tt_tensor *f_permute(tt_tensor *const *in) { return tt_permute(in[0], TT_SHAPE(2, 0, -2)); }
static tt_tensor *f_movedim(tt_tensor *const *in) { return tt_movedim(in[0], 0, -1); }
static tt_tensor *f_expand(tt_tensor *const *in) { return tt_expand(in[0], TT_SHAPE(2, -1, 3)); }
static tt_tensor *f_expand_scalar(tt_tensor *const *in) { return tt_expand(in[0], TT_SHAPE(2, 2)); }
static tt_tensor *f_squeeze(tt_tensor *const *in) { return tt_squeeze(in[0], 1); }
static tt_tensor *f_squeeze_all(tt_tensor *const *in) { return tt_squeeze_all(in[0]); }
static tt_tensor *f_unsqueeze(tt_tensor *const *in) { return tt_mul(tt_unsqueeze(in[0], 1), tt_unsqueeze(in[0], -1)); }
static tt_tensor *f_slice(tt_tensor *const *in) {
    return tt_add(tt_slice(in[0], 1, 0, -1, 2), tt_slice(in[0], 1, 1, INT64_MAX, 2));
}
static tt_tensor *f_slice_nothing(tt_tensor *const *in) { return tt_slice(in[0], 0, 2, 1, 1); }
static tt_tensor *f_select(tt_tensor *const *in) { return tt_mul(tt_select(in[0], 1, -1), tt_select(in[0], 1, 0)); }

/* The second part of three gets no gradient. */
static tt_tensor *f_split(tt_tensor *const *in) {
    tt_tensor *out[3];
    return tt_split(out, 3, in[0], 2, 1) ? NULL : tt_mul(tt_narrow(out[0], 1, 0, 1), out[2]);
}
static tt_tensor *f_chunk(tt_tensor *const *in) {
    tt_tensor *out[3];
    return tt_chunk(out, 3, in[0], 0) ? NULL : tt_add(tt_mul(out[0], out[1]), out[2]);
}
static tt_tensor *f_unbind(tt_tensor *const *in) {
    tt_tensor *out[4];
    return tt_unbind(out, 4, in[0], -1) ? NULL : tt_mul(out[3], tt_add(out[0], out[1]));
}

/* ---- joining */

static tt_tensor *f_cat(tt_tensor *const *in) { return tt_cat(in, 3, 1); }
static tt_tensor *f_cat_twice(tt_tensor *const *in) { return tt_cat((tt_tensor *[]){in[0], in[1], in[0]}, 3, -2); }
static tt_tensor *f_stack(tt_tensor *const *in) { return tt_stack(in, 2, 1); }
static tt_tensor *f_stack_last(tt_tensor *const *in) { return tt_stack(in, 2, -1); }

/* ---- indexing */

/* i64 numbers at, at + step, at + 2 step, ... modulo n, on x's device. */
static tt_tensor *places(const tt_tensor *x, tt_shape shape, int64_t at, int64_t step, int64_t n) {
    tt_tensor *index = x ? tt_empty(shape, TT_I64) : NULL;
    for (int64_t i = 0; i < tt_tensor_numel(index); i++)
        tt_tensor_i64(index)[i] = (at + step * i) % n;
    return tt_to_device(index, tt_tensor_device(x));
}
static tt_tensor *f_index_select(tt_tensor *const *in) {
    return tt_index_select(in[0], 1, places(in[0], TT_SHAPE(6), 2, 3, tt_tensor_size(in[0], 1)));
}
static tt_tensor *f_index_select_0(tt_tensor *const *in) {
    return tt_index_select(in[0], 0, places(in[0], TT_SHAPE(5), 1, 2, tt_tensor_size(in[0], 0)));
}
static tt_tensor *f_gather(tt_tensor *const *in) {
    return tt_gather_dim(in[0], 1, places(in[0], TT_SHAPE(2, 5), 1, 3, tt_tensor_size(in[0], 1)));
}
static tt_tensor *f_gather_images(tt_tensor *const *in) {
    return tt_gather_dim(in[0], 0, places(in[0], TT_SHAPE(3, 2, 3, 1), 1, 1, tt_tensor_size(in[0], 0)));
}
/* No place twice: PyTorch's choice among several is open. */
static tt_tensor *f_scatter(tt_tensor *const *in) {
    return tt_scatter_dim(in[0], 0, places(in[0], TT_SHAPE(2, 3), 0, 1, 4), in[1]);
}
static tt_tensor *f_scatter_value(tt_tensor *const *in) {
    return tt_scatter_value(in[0], 1, places(in[0], TT_SHAPE(3, 2), 0, 3, 4), 0.5);
}
static tt_tensor *f_scatter_add(tt_tensor *const *in) {
    return tt_scatter_add(in[0], 1, places(in[0], TT_SHAPE(2, 5), 0, 1, 3), in[1]);
}
static tt_tensor *f_embedding(tt_tensor *const *in) {
    return tt_embedding(in[0], places(in[0], TT_SHAPE(2, 4), 1, 2, tt_tensor_size(in[0], 0)));
}
static tt_tensor *f_embedding_one(tt_tensor *const *in) {
    return tt_embedding(in[0], places(in[0], TT_SCALAR, 1, 2, tt_tensor_size(in[0], 0)));
}

/* ---- order */

static tt_tensor *f_triu(tt_tensor *const *in) { return tt_triu(in[0], 1); }
static tt_tensor *f_tril(tt_tensor *const *in) { return tt_tril(in[0], -1); }
static tt_tensor *f_cumsum(tt_tensor *const *in) { return tt_cumsum(in[0], 1); }
static tt_tensor *f_sort(tt_tensor *const *in) {
    tt_tensor *values, *indices;
    return tt_sort(&values, &indices, in[0], -1) ? NULL : values;
}
static tt_tensor *f_sort_descending(tt_tensor *const *in) {
    tt_tensor *values, *indices;
    return tt_sort(&values, &indices, in[0], 0, .descending = true) ? NULL : values;
}
static tt_tensor *f_topk(tt_tensor *const *in) {
    tt_tensor *values, *indices;
    return tt_topk(&values, &indices, in[0], 2, 1) ? NULL : values;
}
static tt_tensor *f_topk_many(tt_tensor *const *in) {
    tt_tensor *values, *indices;
    return tt_topk(&values, &indices, in[0], 40, 1, .smallest = true) ? NULL : values;
}
static tt_tensor *f_argsort(tt_tensor *const *in) {
    return tt_gather_dim(in[0], 1, tt_argsort(in[0], 1, .descending = true));
}

/* ---- products of batches */

static tt_tensor *f_bmm(tt_tensor *const *in) { return tt_bmm(in[0], in[1]); }
static tt_tensor *f_batched(tt_tensor *const *in) { return tt_matmul(in[0], in[1]); }
static tt_tensor *f_scores(tt_tensor *const *in) {
    return tt_matmul(tt_permute(in[0], TT_SHAPE(0, 2, 1, 3)), tt_permute(in[1], TT_SHAPE(0, 2, 3, 1)));
}

/* ---- images */

static tt_tensor *f_nearest(tt_tensor *const *in) { return tt_interpolate(in[0], TT_SHAPE(5, 2)); }
static tt_tensor *f_bilinear(tt_tensor *const *in) {
    return tt_interpolate(in[0], TT_SHAPE(7, 2), .mode = TT_BILINEAR);
}
static tt_tensor *f_bilinear_aligned(tt_tensor *const *in) {
    return tt_interpolate(in[0], TT_SHAPE(7, 2), .mode = TT_BILINEAR, .align_corners = true);
}
static tt_tensor *f_bilinear_one(tt_tensor *const *in) {
    return tt_interpolate(in[0], TT_SHAPE(1, 3), .mode = TT_BILINEAR, .align_corners = true);
}

/* ---- attention */

static tt_tensor *f_attention(tt_tensor *const *in) { return tt_scaled_dot_product_attention(in[0], in[1], in[2]); }
static tt_tensor *f_attention_causal(tt_tensor *const *in) {
    return tt_scaled_dot_product_attention(in[0], in[1], in[2], .is_causal = true, .scale = 0.7);
}
/* Of rows and columns t, s: hidden where t + 2 s is a multiple of 3. */
static tt_tensor *f_attention_masked(tt_tensor *const *in) {
    tt_tensor *mask = tt_empty(TT_SHAPE(tt_tensor_size(in[0], -2), tt_tensor_size(in[1], -2)), TT_BOOL);
    bool *p = mask ? tt_tensor_data(mask) : NULL;
    int64_t S = tt_tensor_size(in[1], -2);
    for (int64_t i = 0; i < tt_tensor_numel(mask); i++)
        p[i] = (i / S + 2 * (i % S)) % 3 != 0;
    mask = tt_to_device(mask, tt_tensor_device(in[0]));
    return mask ? tt_scaled_dot_product_attention(in[0], in[1], in[2], .attn_mask = mask) : NULL;
}
/* A number for each column. */
static tt_tensor *f_attention_biased(tt_tensor *const *in) {
    tt_tensor *mask =
        in[0] ? tt_to(places(in[0], TT_SHAPE(tt_tensor_size(in[1], -2)), 0, 2, 3), tt_tensor_dtype(in[0])) : NULL;
    return mask ? tt_scaled_dot_product_attention(in[0], in[1], in[2], .attn_mask = mask) : NULL;
}

/* ---- */

static const gradcheck_case index_cases[] = {
    {"permute", f_permute, 1, {{3, {2, 3, 4}}}},
    {"permute empty", f_permute, 1, {{3, {2, 0, 4}}}},
    {"movedim", f_movedim, 1, {{4, {2, 3, 4, 2}}}},
    {"expand", f_expand, 1, {{2, {4, 1}}}},
    {"expand a scalar", f_expand_scalar, 1, {{0, {0}}}},
    {"squeeze", f_squeeze, 1, {{3, {3, 1, 1}}}},
    {"squeeze nothing", f_squeeze, 1, {{2, {3, 2}}}},
    {"squeeze all", f_squeeze_all, 1, {{4, {1, 3, 1, 2}}}},
    {"unsqueeze", f_unsqueeze, 1, {{2, {3, 4}}}},
    {"slice", f_slice, 1, {{2, {3, 6}}}},
    {"slice of images", f_slice, 1, {{4, {2, 6, 3, 2}}}},
    {"slice nothing", f_slice_nothing, 1, {{2, {3, 2}}}},
    {"select", f_select, 1, {{3, {2, 3, 4}}}},
    {"select of one", f_select, 1, {{4, {2, 1, 3, 2}}}},
    {"split", f_split, 1, {{2, {3, 5}}}},
    {"chunk", f_chunk, 1, {{2, {6, 3}}}},
    {"unbind", f_unbind, 1, {{3, {2, 3, 4}}}},
    {"cat", f_cat, 3, {{2, {3, 2}}, {2, {3, 1}}, {2, {3, 4}}}},
    {"cat with nothing", f_cat, 3, {{3, {2, 2, 2}}, {3, {2, 0, 2}}, {3, {2, 1, 2}}}},
    {"cat of images", f_cat, 3, {{4, {2, 3, 2, 2}}, {4, {2, 1, 2, 2}}, {4, {2, 2, 2, 2}}}},
    {"cat twice", f_cat_twice, 2, {{2, {3, 2}}, {2, {1, 2}}}},
    {"stack", f_stack, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"stack last", f_stack_last, 2, {{2, {3, 4}}, {2, {3, 4}}}},
    {"stack scalars", f_stack_last, 2, {{0, {0}}, {0, {0}}}},
    {"index_select", f_index_select, 1, {{3, {2, 4, 3}}}},
    {"index_select of images", f_index_select, 1, {{4, {2, 4, 3, 2}}}},
    {"index_select rows", f_index_select_0, 1, {{2, {3, 4}}}},
    {"gather", f_gather, 1, {{2, {3, 4}}}},
    {"gather of images", f_gather_images, 1, {{4, {2, 3, 4, 2}}}},
    {"scatter", f_scatter, 2, {{2, {4, 3}}, {2, {2, 3}}}},
    {"scatter_value", f_scatter_value, 1, {{2, {3, 4}}}},
    {"scatter_add", f_scatter_add, 2, {{2, {2, 3}}, {2, {2, 5}}}},
    {"embedding", f_embedding, 1, {{2, {5, 3}}}},
    {"bmm", f_bmm, 2, {{3, {2, 3, 4}}, {3, {2, 4, 2}}}},
    {"bmm of nothing", f_bmm, 2, {{3, {2, 3, 0}}, {3, {2, 0, 2}}}},
    {"matmul by a column", f_batched, 2, {{2, {3, 4}}, {1, {4}}}},
    {"matmul of a row", f_batched, 2, {{1, {4}}, {2, {4, 3}}}},
    {"matmul of a row and a column", f_batched, 2, {{1, {4}}, {1, {4}}}},
    {"matmul rows", f_batched, 2, {{4, {2, 2, 3, 4}}, {2, {4, 2}}}},
    {"matmul by a matrix on the left", f_batched, 2, {{2, {2, 3}}, {3, {2, 3, 2}}}},
    {"matmul of batches by a column", f_batched, 2, {{3, {2, 3, 4}}, {1, {4}}}},
    {"matmul of a row by batches", f_batched, 2, {{1, {3}}, {3, {2, 3, 2}}}},
    {"matmul of no batch", f_batched, 2, {{3, {0, 2, 3}}, {2, {3, 2}}}},
    {"matmul broadcast", f_batched, 2, {{4, {2, 1, 2, 3}}, {4, {1, 2, 3, 2}}}},
    {"matmul broadcast one", f_batched, 2, {{4, {2, 2, 2, 3}}, {3, {1, 3, 1}}}},
    {"attention scores", f_scores, 2, {{4, {2, 3, 2, 4}}, {4, {2, 3, 2, 4}}}},
    {"nearest", f_nearest, 1, {{4, {2, 3, 3, 4}}}},
    {"nearest of one", f_nearest, 1, {{4, {1, 2, 1, 1}}}},
    {"bilinear", f_bilinear, 1, {{4, {2, 3, 3, 5}}}},
    {"bilinear aligned", f_bilinear_aligned, 1, {{4, {2, 3, 3, 5}}}},
    {"bilinear to one", f_bilinear_one, 1, {{4, {2, 3, 3, 2}}}},
    {"attention", f_attention, 3, {{3, {2, 3, 4}}, {3, {2, 5, 4}}, {3, {2, 5, 2}}}},
    {"attention of heads", f_attention, 3, {{4, {2, 2, 3, 4}}, {4, {2, 2, 3, 4}}, {4, {2, 2, 3, 4}}}},
    {"attention of one", f_attention, 3, {{2, {1, 3}}, {2, {1, 3}}, {2, {1, 2}}}},
    {"causal attention", f_attention_causal, 3, {{4, {1, 2, 5, 3}}, {4, {1, 2, 4, 3}}, {4, {1, 2, 4, 2}}}},
    {"masked attention", f_attention_masked, 3, {{3, {2, 4, 3}}, {3, {2, 5, 3}}, {3, {2, 5, 2}}}},
    {"biased attention", f_attention_biased, 3, {{3, {2, 4, 3}}, {3, {2, 5, 3}}, {3, {2, 5, 2}}}},
    {"triu", f_triu, 1, {{3, {2, 3, 4}}}},
    {"tril", f_tril, 1, {{2, {4, 3}}}},
    {"tril of images", f_tril, 1, {{4, {2, 3, 4, 3}}}},
    {"cumsum", f_cumsum, 1, {{3, {2, 4, 3}}}},
    {"cumsum of images", f_cumsum, 1, {{4, {2, 4, 3, 2}}}},
    {"sort", f_sort, 1, {{2, {3, 40}}}},
    {"sort a scalar", f_sort, 1, {{0, {0}}}},
    {"sort nothing", f_sort, 1, {{2, {3, 0}}}},
    {"sort images", f_sort, 1, {{4, {2, 3, 2, 5}}}},
    {"sort descending", f_sort_descending, 1, {{2, {5, 3}}}},
    {"topk", f_topk, 1, {{3, {2, 5, 2}}}},
    {"topk many", f_topk_many, 1, {{2, {2, 70}}}},
    {"argsort", f_argsort, 1, {{2, {3, 5}}}},
    {"embedding of one", f_embedding_one, 1, {{2, {5, 3}}}},
};

static const op_family index_family = {
    .cases = index_cases, .count = OP_COUNT(index_cases), .vectors = "torch-index.json"};

#endif
