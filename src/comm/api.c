/* The public calls, from options to arguments. */
#include "base/args.h"
#include "comm/work.h"

tt_status tt_group_alloc_with(const tt_group_alloc_args *args, size_t size) {
    tt_group_alloc_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__group_alloc_at(a.group, a.bytes, a.out, a.file, a.line);
}
tt_status tt_group_free_with(const tt_group_free_args *args, size_t size) {
    tt_group_free_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__group_free_at(a.group, a.ptr, a.file, a.line);
}
tt_status tt_all_reduce_with(const tt_all_reduce_args *args, size_t size) {
    tt_all_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__all_reduce_at(a.group, a.buf, a.count, a.dtype, a.op, a.file, a.line);
}
tt_status tt_broadcast_with(const tt_broadcast_args *args, size_t size) {
    tt_broadcast_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__broadcast_at(a.group, a.buf, a.count, a.dtype, a.root, a.file, a.line);
}
tt_status tt_reduce_with(const tt_reduce_args *args, size_t size) {
    tt_reduce_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__reduce_at(a.group, a.buf, a.count, a.dtype, a.op, a.root, a.file, a.line);
}
tt_status tt_all_gather_with(const tt_all_gather_args *args, size_t size) {
    tt_all_gather_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__all_gather_at(a.group, a.send, a.recv, a.count, a.dtype, a.file, a.line);
}
tt_status tt_barrier_with(const tt_barrier_args *args, size_t size) {
    tt_barrier_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__barrier_at(a.group, a.file, a.line);
}
