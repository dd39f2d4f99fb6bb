/* basic       y = relu(bn2(conv2(relu(bn1(conv1(x))))) + s)                         3x3, 3x3
 * bottleneck  y = relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + s)       1x1, 3x3, 1x1
 * s = x, or downsample(x), a 1x1 convolution and its normalisation, where x has another size or other channels. The
 * stride is the 3x3 convolution's: torchvision's bottleneck ("v1.5"). Activations and sums are in place: nothing before
 * them needs what they overwrite. */
#include "models/resnet_block.h"
#include "nn/temporaries.h"

enum { MOST_CONVS = 3 };

typedef struct resnet_block {
    int convs;
    tt_module *conv[MOST_CONVS], *norm[MOST_CONVS]; /* borrowed: children */
    tt_module *downsample;                          /* or NULL */
} resnet_block;

tt_module *tt__resnet_conv(const tt__resnet_made *made, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return tt_nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true,
                        .generator = made->generator, .dtype = made->dtype);
}

tt_module *tt__resnet_norm(const tt__resnet_made *made, int64_t channels) {
    return tt_nn_batch_norm2d(channels, .dtype = made->dtype);
}

static tt_tensor *resnet_block_forward(tt_module *self, tt_tensor *x) {
    const resnet_block *b = tt_module_user(self);
    tt_tensor *const given[] = {x, NULL};
    tt__temporaries made = {0};
    tt_tensor *y = x, *shortcut = b->downsample ? tt_module_forward(b->downsample, x) : x;
    tt__temporary(&made, given, shortcut);
    for (int i = 0; i < b->convs; i++) {
        y = tt__temporary(&made, given, tt_module_forward(b->conv[i], y));
        y = tt__temporary(&made, given, tt_module_forward(b->norm[i], y));
        y = tt_relu_(i + 1 < b->convs ? y : tt_add_(y, shortcut));
    }
    tt__temporaries_end(&made, y, NULL);
    return y;
}

static const tt_module_class basic_block_class =
    TT_MODULE_CLASS(.name = "BasicBlock", .forward = resnet_block_forward, .destroy = tt__layer_destroy);
static const tt_module_class bottleneck_class =
    TT_MODULE_CLASS(.name = "Bottleneck", .forward = resnet_block_forward, .destroy = tt__layer_destroy);

/* Add the next convolution, "conv1", "conv2", ..., and its normalisation. */
static tt_status add_conv(tt_module *self, const tt__resnet_made *made, int64_t in, int64_t out, int64_t kernel,
                          int64_t stride) {
    static const char *const conv_names[] = {"conv1", "conv2", "conv3"}, *const norm_names[] = {"bn1", "bn2", "bn3"};
    resnet_block *b = tt_module_user(self);
    int i = b->convs++;
    TT__TRY(tt__add_part(&b->conv[i], self, conv_names[i], tt__resnet_conv(made, in, out, kernel, stride)));
    return tt__add_part(&b->norm[i], self, norm_names[i], tt__resnet_norm(made, out));
}

static tt_status add_downsample(tt_module *self, const tt__resnet_made *made, const tt__resnet_place *p, int64_t out) {
    resnet_block *b = tt_module_user(self);
    if (p->stride == 1 && p->in == out)
        return TT_OK;
    TT__TRY(tt__add_part(&b->downsample, self, "downsample", tt__empty_sequential()));
    TT__TRY(tt__add_numbered(b->downsample, tt__resnet_conv(made, p->in, out, 1, p->stride)));
    return tt__add_numbered(b->downsample, tt__resnet_norm(made, out));
}

static tt_status basic_block_build(tt_module *self, const tt__resnet_made *made, const tt__resnet_place *p) {
    TT__TRY(add_conv(self, made, p->in, p->width, 3, p->stride));
    TT__TRY(add_conv(self, made, p->width, p->width, 3, 1));
    return add_downsample(self, made, p, p->width);
}

static tt_status bottleneck_build(tt_module *self, const tt__resnet_made *made, const tt__resnet_place *p) {
    int64_t out = p->width * TT__BOTTLENECK_EXPANSION;
    TT__TRY(add_conv(self, made, p->in, p->width, 1, 1));
    TT__TRY(add_conv(self, made, p->width, p->width, 3, p->stride));
    TT__TRY(add_conv(self, made, p->width, out, 1, 1));
    return add_downsample(self, made, p, out);
}

tt_module *tt__basic_block(const tt__resnet_made *made, const tt__resnet_place *place) {
    tt_module *self = tt__layer_new(made->who, &basic_block_class, sizeof(resnet_block));
    return self ? tt__layer_made(self, basic_block_build(self, made, place)) : NULL;
}

tt_module *tt__bottleneck(const tt__resnet_made *made, const tt__resnet_place *place) {
    tt_module *self = tt__layer_new(made->who, &bottleneck_class, sizeof(resnet_block));
    return self ? tt__layer_made(self, bottleneck_build(self, made, place)) : NULL;
}

tt_tensor *tt__resnet_block_last_weight(tt_module *block) {
    const resnet_block *b = tt_module_user(block);
    return tt_named_tensors_find(tt_module_parameters(b->norm[b->convs - 1]), "weight");
}
