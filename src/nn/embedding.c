/* Embedding: rows of a weight, chosen by index. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "tensor/ops/ops.h"

static const char who[] = "tt_nn_embedding";

typedef struct embedding {
    tt_tensor *weight;   /* borrowed from the module */
    int64_t padding_idx; /* from 0; -1: none */
    bool sparse;
} embedding;

static tt_tensor *embedding_module_forward(tt_module *self, tt_tensor *x) {
    const embedding *e = tt_module_user(self);
    return tt_embedding(e->weight, x, .padding_idx = e->padding_idx < 0 ? NULL : &e->padding_idx, .sparse = e->sparse);
}

static const tt_module_class embedding_class =
    TT_MODULE_CLASS(.name = "Embedding", .forward = embedding_module_forward, .destroy = tt__layer_destroy);

static tt_status embedding_check(const tt_nn_embedding_args *a) {
    int64_t V = a->num_embeddings;
    if (V < 1 || a->embedding_dim < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected sizes of at least 1, got num_embeddings %lld, embedding_dim %lld",
                        who, (long long)V, (long long)a->embedding_dim);
    if (a->padding_idx && (*a->padding_idx < -V || *a->padding_idx >= V))
        return tt__fail(TT_ERR_INVALID, "%s: expected padding_idx in %lld..%lld, got %lld", who, (long long)-V,
                        (long long)V - 1, (long long)*a->padding_idx);
    return tt__layer_dtype_check(who, a->dtype);
}

static tt_status embedding_add(tt_module *module, embedding *e, const tt_nn_embedding_args *a) {
    tt_tensor *weight = tt__tensor_new(who, TT_SHAPE(a->num_embeddings, a->embedding_dim), a->dtype);
    tt_status status = weight ? tt_normal_(weight, 0, 1, a->generator) : tt_last_status();
    tt_tensor *row = status || e->padding_idx < 0 ? NULL : tt__select(who, weight, 0, e->padding_idx);
    if (!status && e->padding_idx >= 0)
        status = row ? tt__fill_out(who, row, 0) : tt_last_status();
    tt__abandon(row);
    e->weight = weight;
    if (weight)
        weight->sparse_grad = a->sparse;
    return tt__add_made(module, "weight", weight, status);
}

tt_module *tt_nn_embedding_with(const tt_nn_embedding_args *args, size_t size) {
    tt_nn_embedding_args a;
    TT__ARGS_COPY(a, args, size);
    if (embedding_check(&a))
        return NULL;
    tt_module *module = tt__layer_new(who, &embedding_class, sizeof(embedding));
    embedding *e = tt_module_user(module);
    if (!e)
        return NULL;
    e->padding_idx = a.padding_idx ? *a.padding_idx + (*a.padding_idx < 0 ? a.num_embeddings : 0) : -1;
    e->sparse = a.sparse;
    return tt__layer_made(module, embedding_add(module, e, &a));
}
