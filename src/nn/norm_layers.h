/* Batch norms that compute statistics in another way, as SyncBatchNorm (src/parallel) does. */
#ifndef TT_NN_NORM_LAYERS_H
#define TT_NN_NORM_LAYERS_H

#include <tutti/nn.h>

/* What a batch norm calls in training mode, in place of tt_batch_norm(). */
typedef struct tt__batch_norm_kind {
    const tt_module_class *cls; /* the module gets its name; made by TT__BATCH_NORM_CLASS() */
    tt_tensor *(*normalise)(void *user, const tt_batch_norm_args *args);
    /* Called in place of normalise() if a forward in training has refused its x. Must keep the last error. */
    void (*refused)(void *user, int64_t features);
    void (*release)(void *user); /* when the module is freed, or gets another kind */
} tt__batch_norm_kind;

/* The numbers of a batch norm, as text, for comparing: "of 8 features, eps 1e-05, momentum 0.1, affine". */
const char *tt__batch_norm_text(const tt_module *module, char text[96]);

/* How many channels the batch norm has. */
int64_t tt__batch_norm_features(const tt_module *module);

/* Is it a batch norm of the library's, of any kind? */
bool tt__is_batch_norm(const tt_module *module);

/* Make `module`, a batch norm, one of this kind (borrowed); it stays the same object with the same parameters, buffers
 * and hooks, so those who hold it notice nothing. It owns `user` from then on. */
void tt__batch_norm_become(tt_module *module, const tt__batch_norm_kind *kind, void *user);

/* The forward and destroy of a class of batch norms. */
tt_tensor *tt__batch_norm_forward(tt_module *self, tt_tensor *x);
void tt__batch_norm_destroy(tt_module *self);
#define TT__BATCH_NORM_CLASS(name_) \
    TT_MODULE_CLASS(.name = (name_), .forward = tt__batch_norm_forward, .destroy = tt__batch_norm_destroy)

#endif
