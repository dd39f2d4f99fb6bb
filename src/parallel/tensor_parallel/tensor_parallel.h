/* What the files of tensor parallelism share. */
#ifndef TT_PARALLEL_TENSOR_PARALLEL_H
#define TT_PARALLEL_TENSOR_PARALLEL_H

#include <tutti/comm.h>
#include <tutti/nn.h>

/* x := op over all ranks; errors begin with `who`. */
tt_status tt__tp_all_reduce(const char *who, tt_group *group, tt_tensor *x, tt_reduce_op op);

/* How a layer's parameters are divided: the beginning of what tt_module_user() of each such layer points to. */
typedef struct tt__sharding {
    tt_group *group;
    int weight_dim;        /* the dimension in which "weight" is divided */
    int bias_dim;          /* the same of "bias"; -1: it is whole on every rank */
    tt_tensor *weight;     /* borrowed from the module */
    tt_tensor *bias;       /* or NULL */
    bool whole_on_outside; /* the layer gathers columns after its product, or scatters them before */
} tt__sharding;

/* .destroy of the classes of such layers, which identifies them. */
void tt__sharded_destroy(tt_module *self);

/* The sharding of a layer that is divided; NULL: it is none. */
const tt__sharding *tt__sharding_of(const tt_module *module);

/* Make a layer of class `cls`: check that all ranks gave the same text and that n divides `divided` (called `name`);
 * make a plain layer, by make(); check that all ranks drew the same values; take this rank's parts, and free the plain
 * layer. */
typedef struct tt__sharded_layer {
    const char *who;
    const tt_module_class *cls;
    tt__sharding sharding; /* without the tensors */
    const char *name;
    int64_t divided;
    tt_module *(*make)(const void *args);
    const void *args;
} tt__sharded_layer;
tt_module *tt__sharded_layer_make(const tt__sharded_layer *layer, const char *text);

/* View rank r's part of x, which is divided among n. */
tt_tensor *tt__shard_of(tt_tensor *x, int dim, int r, int n);

#endif
