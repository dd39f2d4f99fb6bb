#include "tensor/cpu/onednn/onednn_version.h"

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_create_with_strides(memory, ndims, dims, type, stride)
                  : onednn->dnnl_memory_desc_create_with_tag(memory, ndims, dims, type, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) {
    if (*memory)
        tt__onednn_get()->dnnl_memory_desc_destroy(*memory);
    *memory = NULL;
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    return tt__onednn_get()->dnnl_convolution_forward_primitive_desc_create(
        made, engine, dnnl_forward_training, alg, c->x, c->w, c->bias ? c->b : NULL, c->y, c->stride, c->dilation,
        c->padding, c->padding, attr);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                       dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                       const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    if (c->direction == TT__CONV_DATA)
        return onednn->dnnl_convolution_backward_data_primitive_desc_create(
            made, engine, alg, c->x, c->w, c->y, c->stride, c->dilation, c->padding, c->padding, forward, attr);
    return onednn->dnnl_convolution_backward_weights_primitive_desc_create(
        made, engine, alg, c->x, c->w, c->bias ? c->b : NULL, c->y, c->stride, c->dilation, c->padding, c->padding,
        forward, attr);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *made, const tt__onednn_memory *m, bool bias,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    return tt__onednn_get()->dnnl_matmul_primitive_desc_create(made, engine, m[0], m[1], bias ? m[3] : NULL, m[2],
                                                               attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return tt__onednn_get()->dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, dnnl_data_type_t type, int ndims, const int64_t *dims,
                                     const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_init_by_strides(memory, ndims, dims, type, stride)
                  : onednn->dnnl_memory_desc_init_by_tag(memory, ndims, dims, type, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) { (void)memory; }

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = onednn->dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, alg, &c->x, &c->w, c->bias ? &c->b : NULL, &c->y, c->stride, c->dilation,
        c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, NULL);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_alg_kind_t alg,
                                       dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                       const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        c->direction == TT__CONV_DATA
            ? onednn->dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, &c->x, &c->w, &c->y, c->stride,
                                                                       c->dilation, c->padding, c->padding)
            : onednn->dnnl_dilated_convolution_backward_weights_desc_init(&desc, alg, &c->x, &c->w,
                                                                          c->bias ? &c->b : NULL, &c->y, c->stride,
                                                                          c->dilation, c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, forward);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *made, const tt__onednn_memory *m, bool bias,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = onednn->dnnl_matmul_desc_init(&desc, &m[0], &m[1], bias ? &m[3] : NULL, &m[2]);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, NULL);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return tt__onednn_get()->dnnl_post_ops_append_sum(ops, 1); }

#endif

dnnl_status_t tt__onednn_product_describe(dnnl_primitive_desc_t *made, const tt__onednn_memory *m,
                                          tt__product_adds adds, dnnl_engine_t engine) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = onednn->dnnl_primitive_attr_create(&attr);
    if (!status)
        status = onednn->dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!status && adds == TT__ADDS_TO_Y)
        status = onednn->dnnl_post_ops_create(&ops);
    if (!status && ops)
        status = append_sum(ops);
    if (!status && ops)
        status = onednn->dnnl_primitive_attr_set_post_ops(attr, ops);
    if (!status)
        status = describe_product(made, m, adds == TT__ADDS_BIAS, engine, attr);
    if (ops)
        onednn->dnnl_post_ops_destroy(ops);
    if (attr)
        onednn->dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t describe_conv_by(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_alg_kind_t alg,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    if (conv->direction == TT__CONV_FORWARD)
        return describe_forward(made, conv, alg, engine, attr);
    dnnl_primitive_desc_t forward = NULL; /* a hint that backward asks for */
    dnnl_status_t status = describe_forward(&forward, conv, alg, engine, NULL);
    if (!status)
        status = describe_backward(made, conv, alg, engine, attr, forward);
    if (forward)
        tt__onednn_get()->dnnl_primitive_desc_destroy(forward);
    return status;
}

dnnl_status_t tt__onednn_conv_describe(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr) {
    if (conv->winograd && !describe_conv_by(made, conv, dnnl_convolution_winograd, engine, attr))
        return dnnl_success;
    return describe_conv_by(made, conv, dnnl_convolution_direct, engine, attr);
}
