#include "tensor/cpu/onednn_version.h"

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, int ndims, const int64_t *dims, const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_create_with_strides(memory, ndims, dims, dnnl_f32, stride)
                  : onednn->dnnl_memory_desc_create_with_tag(memory, ndims, dims, dnnl_f32, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) {
    if (*memory)
        tt__onednn_get()->dnnl_memory_desc_destroy(*memory);
    *memory = NULL;
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_engine_t engine,
                                      const_dnnl_primitive_attr_t attr) {
    return tt__onednn_get()->dnnl_convolution_forward_primitive_desc_create(
        made, engine, dnnl_forward_training, dnnl_convolution_direct, c->x, c->w, c->bias ? c->b : NULL, c->y,
        c->stride, c->dilation, c->padding, c->padding, attr);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    if (c->direction == TT__CONV_DATA)
        return onednn->dnnl_convolution_backward_data_primitive_desc_create(made, engine, dnnl_convolution_direct, c->x,
                                                                            c->w, c->y, c->stride, c->dilation,
                                                                            c->padding, c->padding, forward, attr);
    return onednn->dnnl_convolution_backward_weights_primitive_desc_create(
        made, engine, dnnl_convolution_direct, c->x, c->w, c->bias ? c->b : NULL, c->y, c->stride, c->dilation,
        c->padding, c->padding, forward, attr);
}

#else

dnnl_status_t tt__onednn_memory_make(tt__onednn_memory *memory, int ndims, const int64_t *dims, const int64_t *stride) {
    const tt__onednn *onednn = tt__onednn_get();
    return stride ? onednn->dnnl_memory_desc_init_by_strides(memory, ndims, dims, dnnl_f32, stride)
                  : onednn->dnnl_memory_desc_init_by_tag(memory, ndims, dims, dnnl_f32, dnnl_format_tag_any);
}

void tt__onednn_memory_free(tt__onednn_memory *memory) { (void)memory; }

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_engine_t engine,
                                      const_dnnl_primitive_attr_t attr) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = onednn->dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &c->x, &c->w, c->bias ? &c->b : NULL, &c->y, c->stride,
        c->dilation, c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, NULL);
}

static dnnl_status_t describe_backward(dnnl_primitive_desc_t *made, const tt__onednn_conv *c, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward) {
    const tt__onednn *onednn = tt__onednn_get();
    dnnl_convolution_desc_t desc;
    dnnl_status_t status =
        c->direction == TT__CONV_DATA
            ? onednn->dnnl_dilated_convolution_backward_data_desc_init(
                  &desc, dnnl_convolution_direct, &c->x, &c->w, &c->y, c->stride, c->dilation, c->padding, c->padding)
            : onednn->dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &c->x, &c->w,
                                                                          c->bias ? &c->b : NULL, &c->y, c->stride,
                                                                          c->dilation, c->padding, c->padding);
    return status ? status : onednn->dnnl_primitive_desc_create(made, &desc, attr, engine, forward);
}

#endif

dnnl_status_t tt__onednn_conv_describe(dnnl_primitive_desc_t *made, const tt__onednn_conv *conv, dnnl_engine_t engine,
                                       const_dnnl_primitive_attr_t attr) {
    if (conv->direction == TT__CONV_FORWARD)
        return describe_forward(made, conv, engine, attr);
    dnnl_primitive_desc_t forward = NULL; /* a hint that backward asks for */
    dnnl_status_t status = describe_forward(&forward, conv, engine, NULL);
    if (!status)
        status = describe_backward(made, conv, engine, attr, forward);
    if (forward)
        tt__onednn_get()->dnnl_primitive_desc_destroy(forward);
    return status;
}
