/* Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016): conv1, bn1, relu, max_pool2d,
 * four layers of blocks with 64, 128, 256 and 512 times the expansion channels, the mean of each channel, fc.
 *
 * Initial weights: those of the layers, then of all convolutions in the order of the tree, normal with standard
 * deviation sqrt(2 / fan_out), so that a seed gives torchvision's bits. */
#include "base/args.h"
#include "models/parts.h"
#include "nn/initial.h"
#include "tensor/ops/ops.h"

#include <tutti/init.h>
#include <tutti/models.h>

#include <string.h>

/* Arguments of all convolutions and normalisations of a network. */
typedef struct resnet_made {
    const char *who; /* begins errors */
    tt_generator *generator;
    tt_dtype dtype;
} resnet_made;

/* A block from `in` channels to `width` times its expansion, whose first image is `stride` times larger. */
typedef struct resnet_place {
    int64_t in, width, stride;
} resnet_place;

/* Expansions: a basic block's 1, a bottleneck's 4. */
enum { BOTTLENECK_EXPANSION = 4 };

/* ---- blocks
 * basic       y = relu(bn2(conv2(relu(bn1(conv1(x))))) + s)                         3x3, 3x3
 * bottleneck  y = relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + s)       1x1, 3x3, 1x1
 * s = x, or downsample(x), a 1x1 convolution and its normalisation, where x has another size or other channels. The
 * stride is the 3x3 convolution's: torchvision's bottleneck ("v1.5"). Activations and sums are in place: nothing before
 * them needs what they overwrite. */

enum { MOST_CONVS = 3 };

typedef struct resnet_block {
    int convs;
    tt_module *conv[MOST_CONVS], *norm[MOST_CONVS]; /* borrowed: children */
    tt_module *downsample;                          /* or NULL */
} resnet_block;

/* Make a convolution without bias, padded so that only its stride makes the image smaller. */
static tt_module *resnet_conv(const resnet_made *made, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return tt_nn_conv2d(in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true,
                        .generator = made->generator, .dtype = made->dtype);
}

static tt_module *resnet_norm(const resnet_made *made, int64_t channels) {
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
static tt_status add_conv(tt_module *self, const resnet_made *made, int64_t in, int64_t out, int64_t kernel,
                          int64_t stride) {
    static const char *const conv_names[] = {"conv1", "conv2", "conv3"}, *const norm_names[] = {"bn1", "bn2", "bn3"};
    resnet_block *b = tt_module_user(self);
    int i = b->convs++;
    TT__TRY(tt__add_part(&b->conv[i], self, conv_names[i], resnet_conv(made, in, out, kernel, stride)));
    return tt__add_part(&b->norm[i], self, norm_names[i], resnet_norm(made, out));
}

static tt_status add_downsample(tt_module *self, const resnet_made *made, const resnet_place *p, int64_t out) {
    resnet_block *b = tt_module_user(self);
    if (p->stride == 1 && p->in == out)
        return TT_OK;
    TT__TRY(tt__add_part(&b->downsample, self, "downsample", tt__empty_sequential()));
    TT__TRY(tt__add_numbered(b->downsample, resnet_conv(made, p->in, out, 1, p->stride)));
    return tt__add_numbered(b->downsample, resnet_norm(made, out));
}

static tt_status basic_block_build(tt_module *self, const resnet_made *made, const resnet_place *p) {
    TT__TRY(add_conv(self, made, p->in, p->width, 3, p->stride));
    TT__TRY(add_conv(self, made, p->width, p->width, 3, 1));
    return add_downsample(self, made, p, p->width);
}

static tt_status bottleneck_build(tt_module *self, const resnet_made *made, const resnet_place *p) {
    int64_t out = p->width * BOTTLENECK_EXPANSION;
    TT__TRY(add_conv(self, made, p->in, p->width, 1, 1));
    TT__TRY(add_conv(self, made, p->width, p->width, 3, p->stride));
    TT__TRY(add_conv(self, made, p->width, out, 1, 1));
    return add_downsample(self, made, p, out);
}

static tt_module *basic_block_new(const resnet_made *made, const resnet_place *place) {
    tt_module *self = tt__layer_new(made->who, &basic_block_class, sizeof(resnet_block));
    return self ? tt__layer_made(self, basic_block_build(self, made, place)) : NULL;
}

static tt_module *bottleneck_new(const resnet_made *made, const resnet_place *place) {
    tt_module *self = tt__layer_new(made->who, &bottleneck_class, sizeof(resnet_block));
    return self ? tt__layer_made(self, bottleneck_build(self, made, place)) : NULL;
}

/* The weight of the last normalisation of a block, which the sum with its shortcut follows; NULL and an error: no
 * memory. */
static tt_tensor *resnet_block_last_weight(tt_module *block) {
    const resnet_block *b = tt_module_user(block);
    return tt_named_tensors_find(tt_module_parameters(b->norm[b->convs - 1]), "weight");
}

enum { LAYERS = 4, FIRST_WIDTH = 64 };

typedef struct resnet {
    tt_module *conv1, *bn1, *layer[LAYERS], *fc; /* borrowed: children */
    bool small_input;
} resnet;

/* One of the family. */
typedef struct resnet_kind {
    const char *who;
    tt_module *(*block)(const resnet_made *made, const resnet_place *place);
    int64_t expansion, depths[LAYERS];
} resnet_kind;

/* conv1, bn1, relu and the first pooling. */
static tt_tensor *resnet_begin(const resnet *net, tt_tensor *x) {
    tt_tensor *const given[] = {x, NULL};
    tt__temporaries made = {0};
    x = tt__temporary(&made, given, tt_module_forward(net->conv1, x));
    x = tt_relu_(tt__temporary(&made, given, tt_module_forward(net->bn1, x)));
    if (!net->small_input)
        x = tt_max_pool2d(x, 3, .stride = 2, .padding = 1);
    tt__temporaries_end(&made, x, NULL);
    return x;
}

/* The mean of each channel, and fc. */
static tt_tensor *resnet_end(const resnet *net, tt_tensor *x) {
    tt_tensor *const given[] = {x, NULL};
    tt__temporaries made = {0};
    x = tt__temporary(&made, given, tt_adaptive_avg_pool2d(x, 1, 1));
    x = tt__temporary(&made, given, tt_flatten(x, 1));
    tt_tensor *y = tt_module_forward(net->fc, x);
    tt__temporaries_end(&made, y, NULL);
    return y;
}

static tt_tensor *resnet_forward(tt_module *self, tt_tensor *x) {
    const resnet *net = tt_module_user(self);
    tt_tensor *const given[] = {x, NULL};
    tt__temporaries made = {0};
    x = tt__temporary(&made, given, resnet_begin(net, x));
    for (int i = 0; i < LAYERS; i++)
        x = tt__temporary(&made, given, tt_module_forward(net->layer[i], x));
    tt_tensor *y = resnet_end(net, x);
    tt__temporaries_end(&made, y, NULL);
    return y;
}

/* ---- as a chain: the beginning, each block, the end ---- */

static int64_t resnet_part_count(tt_module *self) {
    const resnet *net = tt_module_user(self);
    int64_t parts = 2;
    for (int i = 0; i < LAYERS; i++)
        parts += tt_module_child_count(net->layer[i]);
    return parts;
}

/* The block that is part `part`; NULL: the part is no block. */
static tt_module *block_of_part(const resnet *net, int64_t part) {
    for (int i = 0; i < LAYERS && part > 0; i++) {
        int64_t blocks = tt_module_child_count(net->layer[i]);
        if (part <= blocks)
            return tt_module_child_at(net->layer[i], part - 1);
        part -= blocks;
    }
    return NULL;
}

static tt_tensor *resnet_forward_part(tt_module *self, int64_t part, tt_tensor *x) {
    const resnet *net = tt_module_user(self);
    tt_module *block = block_of_part(net, part);
    if (block)
        return tt_module_forward(block, x);
    return part == 0 ? resnet_begin(net, x) : resnet_end(net, x);
}

static tt_module *resnet_part_module(tt_module *self, int64_t part, int64_t k) {
    const resnet *net = tt_module_user(self);
    tt_module *block = block_of_part(net, part);
    if (block || part)
        return k ? NULL : block ? block : net->fc;
    return k == 0 ? net->conv1 : k == 1 ? net->bn1 : NULL;
}

static const tt_module_class resnet_class =
    TT_MODULE_CLASS(.name = "ResNet", .forward = resnet_forward, .destroy = tt__layer_destroy,
                    .part_count = resnet_part_count, .forward_part = resnet_forward_part,
                    .part_module = resnet_part_module);

/* ---- making ---- */

static tt_module *resnet_stem(const resnet_made *made, bool small_input) {
    return small_input ? resnet_conv(made, 3, FIRST_WIDTH, 3, 1) : resnet_conv(made, 3, FIRST_WIDTH, 7, 2);
}

static tt_status add_layer(resnet *net, tt_module *self, int i, const resnet_kind *kind, const resnet_made *made) {
    static const char *const names[LAYERS] = {"layer1", "layer2", "layer3", "layer4"};
    int64_t width = (int64_t)FIRST_WIDTH << i;
    resnet_place place = {.in = i ? width / 2 * kind->expansion : FIRST_WIDTH, .width = width, .stride = i ? 2 : 1};
    TT__TRY(tt__add_part(&net->layer[i], self, names[i], tt__empty_sequential()));
    for (int64_t j = 0; j < kind->depths[i]; j++) {
        TT__TRY(tt__add_numbered(net->layer[i], kind->block(made, &place)));
        place = (resnet_place){.in = width * kind->expansion, .width = width, .stride = 1};
    }
    return TT_OK;
}

static tt_tensor *weight_of(tt_module *module) { return tt_named_tensors_find(tt_module_parameters(module), "weight"); }

static tt_status draw_convs(tt_module *self, tt_generator *generator) {
    const tt_named_modules *all = tt_module_named_modules(self);
    for (int64_t i = 0; all && i < all->count; i++)
        if (!strcmp(tt_module_class_name(all->modules[i]), "Conv2d"))
            TT__TRY(tt_init_kaiming_normal_(weight_of(all->modules[i]), .mode = TT_FAN_OUT,
                                            .nonlinearity = TT_NONLINEARITY_RELU, .generator = generator));
    return all ? TT_OK : tt_last_status();
}

/* Let all blocks begin as the identity, by zeroing the weight of their last normalisation. */
static tt_status zero_last_norms(const resnet *net, const char *who) {
    for (int i = 0; i < LAYERS; i++)
        for (int64_t j = 0; j < tt_module_child_count(net->layer[i]); j++) {
            tt_tensor *weight = resnet_block_last_weight(tt_module_child_at(net->layer[i], j));
            TT__TRY(weight ? tt__fill_out(who, weight, 0) : tt_last_status());
        }
    return TT_OK;
}

static tt_status resnet_build(tt_module *self, const resnet_kind *kind, const tt_model_resnet18_args *a) {
    resnet *net = tt_module_user(self);
    const resnet_made made = {kind->who, a->generator, a->dtype};
    net->small_input = a->small_input;
    TT__TRY(tt__add_part(&net->conv1, self, "conv1", resnet_stem(&made, a->small_input)));
    TT__TRY(tt__add_part(&net->bn1, self, "bn1", resnet_norm(&made, FIRST_WIDTH)));
    for (int i = 0; i < LAYERS; i++)
        TT__TRY(add_layer(net, self, i, kind, &made));
    int64_t features = (FIRST_WIDTH << (LAYERS - 1)) * kind->expansion;
    TT__TRY(tt__add_part(&net->fc, self, "fc",
                         tt_nn_linear(features, a->num_classes, .generator = a->generator, .dtype = a->dtype)));
    TT__TRY(draw_convs(self, a->generator));
    return a->zero_init_residual ? zero_last_norms(net, kind->who) : TT_OK;
}

static tt_module *resnet_new(const resnet_kind *kind, const tt_model_resnet18_args *args, size_t size) {
    tt_model_resnet18_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.num_classes < 1)
        return tt__fail_null(TT_ERR_INVALID, "%s: expected num_classes of at least 1, got %lld", kind->who,
                             (long long)a.num_classes);
    if (tt__layer_dtype_check(kind->who, a.dtype))
        return NULL;
    tt_module *self = tt__layer_new(kind->who, &resnet_class, sizeof(resnet));
    return self ? tt__model_made(kind->who, self, resnet_build(self, kind, &a)) : NULL;
}

tt_module *tt_model_resnet18_with(const tt_model_resnet18_args *args, size_t size) {
    static const resnet_kind kind = {"tt_model_resnet18", basic_block_new, 1, {2, 2, 2, 2}};
    return resnet_new(&kind, args, size);
}

tt_module *tt_model_resnet34_with(const tt_model_resnet18_args *args, size_t size) {
    static const resnet_kind kind = {"tt_model_resnet34", basic_block_new, 1, {3, 4, 6, 3}};
    return resnet_new(&kind, args, size);
}

tt_module *tt_model_resnet50_with(const tt_model_resnet18_args *args, size_t size) {
    static const resnet_kind kind = {"tt_model_resnet50", bottleneck_new, BOTTLENECK_EXPANSION, {3, 4, 6, 3}};
    return resnet_new(&kind, args, size);
}
