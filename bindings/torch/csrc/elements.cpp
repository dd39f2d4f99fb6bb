#include "elements.hpp"

#include "errors.hpp"

#include <ATen/MemoryOverlap.h>

namespace tutti_torch {

static bool known_dtype(at::ScalarType type, tt_dtype *dtype) {
    switch (type) {
    case at::kFloat: return *dtype = TT_F32, true;
    case at::kDouble: return *dtype = TT_F64, true;
    case at::kInt: return *dtype = TT_I32, true;
    case at::kLong: return *dtype = TT_I64, true;
    case at::kByte: return *dtype = TT_U8, true;
    case at::kHalf: return *dtype = TT_F16, true;
    case at::kBFloat16: return *dtype = TT_BF16, true;
    case at::kChar: return *dtype = TT_I8, true;
    case at::kShort: return *dtype = TT_I16, true;
    case at::kBool: return *dtype = TT_BOOL, true;
    default: return false;
    }
}

tt_dtype reduced_dtype(const at::Tensor &x, const char *call) {
    tt_dtype dtype;
    if (!known_dtype(x.scalar_type(), &dtype))
        throw c10::TypeError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                             c10::str(call, ": expected float32, float64, float16, bfloat16, int8 to int64, uint8 or "
                                            "bool elements to reduce, got ", x.scalar_type()));
    return dtype;
}

Buffer moved(const at::Tensor &x) {
    tt_dtype dtype;
    if (known_dtype(x.scalar_type(), &dtype))
        return {x.data_ptr(), x.numel(), dtype};
    return {x.data_ptr(), x.numel() * static_cast<int64_t>(x.element_size()), TT_U8};
}

Buffer reduced(const at::Tensor &x, const char *call) { return {x.data_ptr(), x.numel(), reduced_dtype(x, call)}; }

void check_tensor(const at::Tensor &x, const char *call) {
    if (!x.defined())
        refuse(c10::str(call, ": expected a tensor, got none"));
    if (x.device().type() != at::kCPU)
        refuse(c10::str(call, ": the back end tutti takes tensors in the host's memory, got one on ", x.device(),
                        "; init_process_group(\"cpu:tutti,cuda:nccl\") has both kinds"));
    if (x.layout() != at::kStrided)
        refuse(c10::str(call, ": unsupported layout ", x.layout(), ": expected a dense tensor"));
}

void check_alike(const Tensors &tensors, const char *call) {
    if (tensors.empty())
        refuse(c10::str(call, ": requires non-empty tensor list"));
    const at::Tensor &first = tensors[0];
    for (size_t i = 1; i < tensors.size(); i++) {
        const at::Tensor &x = tensors[i];
        if (x.layout() != first.layout())
            refuse(c10::str(call, ": invalid tensor layout at index ", i, ": expected ", first.layout(), ", got ",
                            x.layout()));
        if (x.scalar_type() != first.scalar_type())
            refuse(c10::str(call, ": invalid tensor type at index ", i, ": expected ", first.scalar_type(), ", got ",
                            x.scalar_type()));
        if (x.sizes() != first.sizes())
            refuse(c10::str(call, ": invalid tensor size at index ", i, ": expected ", first.sizes(), ", got ",
                            x.sizes()));
    }
}

void check_types(const Tensors &list, const at::Tensor &like, const char *call) {
    for (size_t i = 0; i < list.size(); i++) {
        check_tensor(list[i], call);
        if (list[i].scalar_type() != like.scalar_type())
            refuse(c10::str(call, ": invalid tensor type at index ", i, ": expected ", like.scalar_type(), ", got ",
                            list[i].scalar_type()));
    }
}

void check_sizes(const Tensors &list, const at::Tensor &like, const char *call) {
    for (size_t i = 0; i < list.size(); i++)
        if (list[i].numel() != like.numel())
            refuse(c10::str(call, ": invalid tensor size at index ", i, ": expected ", like.numel(),
                            " elements, got ", list[i].numel()));
}

void check_parts(const at::Tensor &large, const at::Tensor &part, int ranks, const char *call,
                 const std::string &name) {
    check_tensor(large, call);
    check_tensor(part, call);
    if (large.numel() != part.numel() * ranks || large.scalar_type() != part.scalar_type())
        refuse(c10::str(call, ": expected ", name, " of ", part.numel() * ranks, " elements of ", part.scalar_type(),
                        " (", ranks, " ranks), got ", large.numel(), " of ", large.scalar_type()));
}

at::Tensor &only(Tensors &tensors, const char *call, const char *list) {
    if (tensors.size() != 1)
        refuse(c10::str(call, ": requires a single-element ", list, ", got one of ", tensors.size()));
    check_tensor(tensors[0], call);
    return tensors[0];
}

bool lies_packed(const at::Tensor &x) { return x.is_contiguous() && !x.is_neg() && !x.is_conj(); }

at::Tensor packed(const at::Tensor &x) {
    return lies_packed(x) ? x : x.detach().contiguous().resolve_conj().resolve_neg();
}

at::Tensor room_for(const at::Tensor &x) {
    return lies_packed(x) ? x : at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
}

void check_writable(const at::Tensor &x) {
    if (at::has_internal_overlap(x) == at::MemOverlap::Yes)
        refuse(c10::str("expected an output whose elements have memory of their own each, got one of sizes ", x.sizes(),
                        " and strides ", x.strides(), ", as expand() makes them: give a clone()"));
}

std::function<void()> copy_back(const at::Tensor &x, const at::Tensor &from) {
    if (from.is_same(x))
        return nullptr;
    check_writable(x);
    return [x, from]() mutable { x.copy_(from); };
}

std::function<void()> copy_back(const Tensors &list, const Tensors &from) {
    for (size_t i = 0; i < list.size(); i++)
        if (!from[i].is_same(list[i]))
            check_writable(list[i]);
    return [list, from]() mutable {
        for (size_t i = 0; i < list.size(); i++)
            if (!from[i].is_same(list[i]))
                list[i].copy_(from[i]);
    };
}

static double factor_of(const c10d::ReduceOp &op) {
#if TUTTI_TORCH_2
    const auto *s = static_cast<c10d::PreMulSumSupplement *>(op.supplement_.get());
    return s->tensor_factor.defined() ? s->tensor_factor.item<double>() : s->double_factor;
#else
    const auto *s = static_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    return s->tensor_factors.empty() ? s->double_factor : s->tensor_factors[0].item<double>();
#endif
}

Reduction reduction(const c10d::ReduceOp &op) {
    switch (op.op_) {
    case c10d::ReduceOp::SUM: return {TT_SUM, 0};
    case c10d::ReduceOp::AVG: return {TT_AVG, 0};
    case c10d::ReduceOp::PRODUCT: return {TT_PRODUCT, 0};
    case c10d::ReduceOp::MIN: return {TT_MIN, 0};
    case c10d::ReduceOp::MAX: return {TT_MAX, 0};
    case c10d::ReduceOp::BAND: return {TT_BAND, 0};
    case c10d::ReduceOp::BOR: return {TT_BOR, 0};
    case c10d::ReduceOp::BXOR: return {TT_BXOR, 0};
    case c10d::ReduceOp::PREMUL_SUM: return {TT_PREMUL_SUM, factor_of(op)};
    default: refuse(c10::str("expected a reduce operation, got number ", static_cast<int>(op.op_)));
    }
}

} // namespace tutti_torch
