// Messages between two ranks.
#include "errors.hpp"
#include "process_group.hpp"

namespace tutti_torch {

using c10d::OpType;

static void check_peer(int peer, int size, const char *call) {
    if (peer < 0 || peer >= size)
        refuse(c10::str(call, ": expected a rank of 0 to ", size - 1, ", got ", peer));
}

static void check_tag(int tag, const char *call) {
    if (tag < 0)
        refuse(c10::str(call, ": expected a tag of 0 or more, got ", tag));
}

WorkPtr ProcessGroupTutti::send(Tensors &tensors, int peer, int tag) {
    at::Tensor &x = only(tensors, "send");
    check_peer(peer, getSize(), "send");
    check_tag(tag, "send");
    at::Tensor flat = packed(x);
    const Buffer b = moved(flat);
    tt_send_args a = TT_ARGS_INIT;
    a.buf = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.peer = peer;
    a.tag = tag;
    return start({OpType::SEND, "tutti:send", {flat}, {}, nullptr, c10d::kUnsetTimeout}, tensors, a, tt_send_with);
}

static Task recv_task(OpType type, const char *title, Tensors &tensors, const at::Tensor &into,
                      std::chrono::milliseconds timeout = c10d::kUnsetTimeout) {
    const at::Tensor &x = tensors[0];
    return {type, title, {into, x}, {tensors}, copy_back(x, into), timeout};
}

static tt_recv_args recv_args(const at::Tensor &into, int peer, int tag) {
    const Buffer b = moved(into);
    tt_recv_args a = TT_ARGS_INIT;
    a.buf = b.data;
    a.count = b.count;
    a.dtype = b.dtype;
    a.peer = peer;
    a.tag = tag;
    return a;
}

WorkPtr ProcessGroupTutti::recv(Tensors &tensors, int peer, int tag) {
    at::Tensor into = packed(only(tensors, "recv"));
    check_peer(peer, getSize(), "recv");
    check_tag(tag, "recv");
    return start(recv_task(OpType::RECV, "tutti:recv", tensors, into), tensors, recv_args(into, peer, tag),
                 tt_recv_with);
}

WorkPtr ProcessGroupTutti::recvAnysource(Tensors &tensors, int tag) {
    at::Tensor into = packed(only(tensors, "recv"));
    check_tag(tag, "recv");
    return start(recv_task(OpType::RECVANYSOURCE, "tutti:recvAnySource", tensors, into), tensors,
                 recv_args(into, TT_ANY_SOURCE, tag), tt_recv_with);
}

WorkPtr ProcessGroupTutti::await_message(at::Tensor into, int peer, int tag) {
    constexpr std::chrono::hours YEAR{24 * 365};
    Tensors tensors{into};
    return start(recv_task(OpType::RECV, "tutti:recv", tensors, into, YEAR), tensors, recv_args(into, peer, tag),
                 tt_recv_with);
}

} // namespace tutti_torch
