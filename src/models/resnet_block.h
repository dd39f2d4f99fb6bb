/* The blocks of residual networks: He et al., "Deep Residual Learning for Image Recognition", 2016. */
#ifndef TT_MODELS_RESNET_BLOCK_H
#define TT_MODELS_RESNET_BLOCK_H

#include "models/parts.h"

/* What all convolutions and normalisations of a network have in common. */
typedef struct tt__resnet_made {
    const char *who; /* begins errors */
    tt_generator *generator;
    tt_dtype dtype;
} tt__resnet_made;

/* A block from `in` channels to `width` times its expansion, whose first image is `stride` times larger. */
typedef struct tt__resnet_place {
    int64_t in, width, stride;
} tt__resnet_place;

/* Make a block. Expansions: a basic block's 1, a bottleneck's 4. */
typedef tt_module *tt__resnet_block(const tt__resnet_made *made, const tt__resnet_place *place);
tt__resnet_block tt__basic_block, tt__bottleneck;
enum { TT__BOTTLENECK_EXPANSION = 4 };

/* The weight of the last normalisation of a block, which the sum with its shortcut follows; NULL and an error: no
 * memory. */
tt_tensor *tt__resnet_block_last_weight(tt_module *block);

/* Make a convolution without bias that keeps the size of the image but for its stride; its normalisation. */
tt_module *tt__resnet_conv(const tt__resnet_made *made, int64_t in, int64_t out, int64_t kernel, int64_t stride);
tt_module *tt__resnet_norm(const tt__resnet_made *made, int64_t channels);

#endif
