/* Views, joining, indexing, order, images of another size, batched products. */
#ifndef PARITY_INDEX_H
#define PARITY_INDEX_H

#include "parity.h"

PARITY(permute, tt_permute(in[0], parity_shape(c, "order", tt_tensor_dim(in[0]))))
PARITY(expand, tt_expand(in[0], parity_shape(c, "size", INT("ndim", 0))))
PARITY(slice, tt_slice(in[0], INT("dim", 0), INT("start", 0), INT("end", 0), INT("step", 1)))
PARITY(select, tt_select(in[0], INT("dim", 0), INT("index", 0)))
PARITY(unsqueeze, tt_unsqueeze(in[0], INT("dim", 0)))
PARITY(cat, tt_cat(in, c->inputs, INT("dim", 0)))
PARITY(stack, tt_stack(in, c->inputs, INT("dim", 0)))
PARITY(index_select, tt_index_select(in[0], INT("dim", 0), in[1]))
PARITY(gather_dim, tt_gather_dim(in[0], INT("dim", 0), in[1]))
PARITY(scatter_add, tt_scatter_add(in[0], INT("dim", 0), in[1], in[2]))
PARITY(scatter_dim, tt_scatter_dim(in[0], INT("dim", 0), in[1], in[2]))
PARITY(scatter_value, tt_scatter_value(in[0], INT("dim", 0), in[1], NUMBER("value", 0)))
PARITY(embedding_padding, tt_embedding(in[0], in[1], .padding_idx = &(int64_t){INT("padding", 0)}))
PARITY(embedding, tt_embedding(in[0], in[1]))
PARITY(triu, tt_triu(in[0], INT("diagonal", 0)))
PARITY(tril, tt_tril(in[0], INT("diagonal", 0)))
PARITY(cumsum, tt_cumsum(in[0], INT("dim", 0)))
PARITY(bmm, tt_bmm(in[0], in[1]))
PARITY(interpolate, tt_interpolate(in[0], TT_SHAPE(INT("height", 1), INT("width", 1)),
                                   .mode = parity_bool(c, "bilinear") ? TT_BILINEAR : TT_NEAREST,
                                   .align_corners = parity_bool(c, "align_corners")))

static void parity_sort(parity_call *c) {
    tt_tensor *values = NULL, *indices = NULL;
    tt_ignore(tt_sort(&values, &indices, c->in[0], INT("dim", 0), .descending = parity_bool(c, "descending")));
    parity_give(c, values);
    parity_give(c, indices);
}
PARITY_OP(sort)

static void parity_topk(parity_call *c) {
    tt_tensor *values = NULL, *indices = NULL;
    tt_ignore(tt_topk(&values, &indices, c->in[0], INT("k", 1), INT("dim", 0), .smallest = parity_bool(c, "smallest")));
    parity_give(c, values);
    parity_give(c, indices);
}
PARITY_OP(topk)

#endif
