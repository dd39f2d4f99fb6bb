/* weight (V,C), of which each rank has V/n rows; indices (...) -> their rows (...,C): those of one's own, zeros for the
 * others', summed over the ranks. */
#include <inttypes.h>
#include <stdio.h>

#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "parallel/tensor_parallel/own_classes.h"
#include "parallel/tensor_parallel/tensor_parallel.h"

#include <tutti/tensor_parallel.h>

static const char who[] = "tt_nn_vocab_parallel_embedding";

/* The rows of one's own (B,1,C), and zeros. */
static tt_tensor *own_rows(const tt__sharding *s, const tt__own_classes *own) {
    tt_tensor *rows = tt_embedding(s->weight, own->place);
    tt_tensor *is_own = tt_view(own->is_own, TT_SHAPE(own->is_own->numel, 1, 1)), *y = tt__only_where(is_own, rows);
    tt__abandon(rows);
    tt__abandon(is_own);
    return y;
}

/* x, which goes, in the shape of the indices, with C behind. */
static tt_tensor *rows_of(const tt_tensor *indices, tt_tensor *x) {
    tt_shape shape = indices->shape;
    if (!x)
        return NULL;
    shape.dim[shape.ndim++] = tt_tensor_size(x, -1);
    tt_tensor *y = tt_view(x, shape);
    tt__abandon(x);
    return y;
}

static tt_tensor *vocab_embedding_forward(tt_module *self, tt_tensor *indices) {
    const tt__sharding *s = tt_module_user(self);
    const tt__class_list list = {indices, tt_tensor_size(s->weight, 0), s->group, s->weight->dtype, NULL};
    tt__own_classes own;
    if (indices->shape.ndim >= TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected indices of at most %d dimensions, got %s", who,
                               TT_MAX_DIMS - 1, TT__DESCRIBE(indices));
    tt_tensor *rows = tt__own_classes_find(who, &own, &list) ? own_rows(s, &own) : NULL;
    tt__own_classes_end(&own);
    tt_tensor *sum = tt_tp_reduce(rows, s->group);
    if (sum != rows)
        tt__abandon(rows);
    return rows_of(indices, sum);
}

static const tt_module_class vocab_embedding_class =
    TT_MODULE_CLASS(.name = "VocabParallelEmbedding", .forward = vocab_embedding_forward,
                    .destroy = tt__sharded_destroy);

static tt_module *make_plain_embedding(const void *args) {
    const tt_nn_vocab_parallel_embedding_args *a = args;
    return tt_nn_embedding(a->num_embeddings, a->embedding_dim, .generator = a->generator, .dtype = a->dtype);
}

tt_module *tt_nn_vocab_parallel_embedding_with(const tt_nn_vocab_parallel_embedding_args *args, size_t size) {
    tt_nn_vocab_parallel_embedding_args a;
    TT__ARGS_COPY(a, args, size);
    char text[160];
    snprintf(text, sizeof text, "an embedding of %" PRId64 " in %" PRId64 " of %s", a.num_embeddings, a.embedding_dim,
             tt_dtype_name(a.dtype));
    const tt__sharded_layer layer = {.who = who,
                                     .cls = &vocab_embedding_class,
                                     .sharding = {.group = a.group},
                                     .name = "num_embeddings",
                                     .divided = a.num_embeddings,
                                     .make = make_plain_embedding,
                                     .args = &a};
    return tt__sharded_layer_make(&layer, text);
}
