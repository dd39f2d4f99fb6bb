#include "window.hpp"

#include "deadline.hpp"
#include "errors.hpp"
#include "interpreter.hpp"
#include "symmetric.hpp"

#if TUTTI_TORCH_2_15

#include <cstring>

namespace tutti_torch {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

enum Tag { HEADER, ELEMENTS, SIGNAL };

struct PutHeader { // of a put by messages: elements for this part of the tensor follow
    int64_t first_byte, bytes;
};

at::Tensor words(int64_t n) { return at::zeros({n}, at::kLong); }

at::Tensor bytes_of(const at::Tensor &x) { return x.detach().view({-1}).view(at::kByte); }

[[noreturn]] void fail_late(const char *call, const std::string &what, milliseconds limit) {
    tt_ignore(tt_fail(TT_ERR_TIMEOUT, "Window.%s: %s within %lld ms; the window can still be used", call, what.c_str(),
                      static_cast<long long>(limit.count())));
    raise(TT_ERR_TIMEOUT);
}

} // namespace

c10::intrusive_ptr<c10d::Window> ProcessGroupTutti::new_window(const std::optional<at::Tensor> &tensor) {
    std::vector<int> all(getSize());
    for (int r = 0; r < getSize(); r++)
        all[r] = r;
    auto ranks = c10::static_intrusive_pointer_cast<ProcessGroupTutti>(split(store_, all, options_));
    return c10::make_intrusive<TuttiWindow>(std::move(ranks), options_->timeout, tensor);
}

TuttiWindow::TuttiWindow(c10::intrusive_ptr<ProcessGroupTutti> ranks, milliseconds timeout,
                         const std::optional<at::Tensor> &tensor)
    : ranks_(std::move(ranks)), timeout_(timeout), peers_(ranks_->getSize()),
      puts_(std::make_shared<ReceivedPuts>()) {
    puts_->written.resize(peers_.size());
    agree(tensor, "new_window");
    if (tensor)
        start_thread();
}

TuttiWindow::~TuttiWindow() { end_thread(); }

// ---- the tensor

at::Tensor TuttiWindow::gathered(const at::Tensor &mine) {
    at::Tensor from = mine, all = words(mine.numel() * ranks_->getSize());
    c10d::AllgatherOptions opts;
    opts.timeout = timeout_;
    ranks_->_allgather_base(all, from, opts)->wait();
    return all;
}

// All ranks learn where the others' tensors lie, and that they are alike.
void TuttiWindow::agree(const std::optional<at::Tensor> &tensor, const char *call) {
    enum { THERE, TYPE, BYTES, OFFSET, FIELDS };
    if (tensor) {
        check_tensor(*tensor, call);
        check_writable(*tensor);
    }
    const bool packed = !tensor || tensor->is_contiguous();
    const at::Tensor mine = words(FIELDS);
    auto *own = mine.data_ptr<int64_t>();
    own[THERE] = tensor ? packed ? 1 : -1 : 0;
    own[TYPE] = tensor ? static_cast<int64_t>(tensor->scalar_type()) : 0;
    own[BYTES] = tensor ? static_cast<int64_t>(tensor->nbytes()) : 0;
    own[OFFSET] = tensor && tensor->nbytes() ? symmetric_offset(*ranks_->group(), *tensor) : -1;
    const at::Tensor all = gathered(mine);
    const auto *first = all.data_ptr<int64_t>();
    const auto text = [](const int64_t *of) {
        if (!of[THERE])
            return std::string("no tensor");
        return c10::str(of[THERE] < 0 ? "one that is not contiguous" : "one of ", of[BYTES], " bytes of ",
                        static_cast<at::ScalarType>(of[TYPE]));
    };
    for (int r = 0; r < ranks_->getSize(); r++) {
        const int64_t *of = first + r * FIELDS;
        if (of[THERE] < 0)
            refuse(c10::str(call, ": expected contiguous tensors, got one of rank ", r, " that is not"));
        if (std::memcmp(of, first, OFFSET * sizeof *of) != 0)
            refuse(c10::str(call, ": expected tensors of one type and size on all ranks, got ", text(first),
                            " on rank 0 and ", text(of), " on rank ", r));
        peers_[r].offset = of[OFFSET];
    }
    tensor_ = tensor ? *tensor : at::Tensor();
}

void TuttiWindow::require_tensor(const char *call) const {
    if (!tensor_.defined())
        refuse(c10::str("Window.", call, ": expected a window with a tensor: tensor_register() gives it one"));
}

void TuttiWindow::tensor_register(const at::Tensor &tensor, bool owning) {
    if (tensor_.defined())
        refuse("Window.tensor_register: expected a window without a tensor: tensor_deregister() takes the one that it "
               "has away");
    agree(tensor, "tensor_register");
    if (!owning) // the program keeps the memory
        tensor_ = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options());
    start_thread();
}

// When all ranks are here, none puts any more.
void TuttiWindow::tensor_deregister() {
    require_tensor("tensor_deregister");
    const int size = ranks_->getSize();
    const at::Tensor sent = words(size);
    for (int r = 0; r < size; r++)
        sent.data_ptr<int64_t>()[r] = peers_[r].sent;
    const at::Tensor all = gathered(sent);
    const auto end = deadline_in(timeout_);
    for (int r = 0; r < size; r++)
        if (!puts_->await(r, all.data_ptr<int64_t>()[r * size + ranks_->getRank()], end))
            fail_late("tensor_deregister", c10::str("what rank ", r, " had put did not arrive"), timeout_);
    puts_->set_tensor(at::Tensor());
    tensor_ = at::Tensor();
}

int TuttiWindow::rank_of(int64_t rank, const char *call) const {
    if (rank < 0 || rank >= ranks_->getSize())
        refuse(c10::str("Window.", call, ": expected a rank of 0 to ", ranks_->getSize() - 1, ", got ", rank));
    return static_cast<int>(rank);
}

void *TuttiWindow::reach(int rank) const {
    if (rank == ranks_->getRank())
        return tensor_.data_ptr();
    return peers_[rank].offset < 0 ? nullptr : memory_of(*ranks_->group(), rank, peers_[rank].offset);
}

at::Tensor TuttiWindow::map_remote_tensor(int64_t rank) {
    require_tensor("map_remote_tensor");
    const int r = rank_of(rank, "map_remote_tensor");
    void *at = reach(r);
    if (!at)
        refuse(c10::str("Window.map_remote_tensor: the tensor of rank ", r, " can't be mapped: it is on another host, "
                        "or was not made within tutti_torch.symmetric_memory()"));
    auto self = c10::intrusive_ptr<TuttiWindow>::reclaim_copy(this); // the mapping is the group's
    const at::Tensor held = tensor_;
    return at::from_blob(at, tensor_.sizes(), [self, held](void *) {}, tensor_.options());
}

c10d::WindowAttr TuttiWindow::get_attr(int64_t rank) {
    rank_of(rank, "get_attr");
    return {c10d::WindowAccessType::UNIFIED};
}

// ---- puts

WorkPtr TuttiWindow::sent(std::vector<WorkPtr> messages, bool async_op, milliseconds timeout, const char *call,
                          int rank) {
    const milliseconds limit = limit_of(timeout);
    const auto end = deadline_in(limit);
    for (const WorkPtr &each : messages)
        if (!async_op && !static_cast<TuttiWork *>(each.get())->ends_within(left_until(end, limit)))
            fail_late(call, c10::str("rank ", rank, " did not take it"), limit);
    return c10::make_intrusive<BatchWork>(ranks_->getRank(), std::move(messages));
}

WorkPtr TuttiWindow::put(const at::Tensor &tensor, int64_t rank, int64_t offset, bool async_op,
                         const c10d::PutOptions &opts) {
    require_tensor("put");
    const int r = rank_of(rank, "put");
    check_tensor(tensor, "Window.put");
    if (tensor.scalar_type() != tensor_.scalar_type())
        refuse(c10::str("Window.put: expected elements of the window's type, ", tensor_.scalar_type(), ", got ",
                        tensor.scalar_type()));
    if (offset < 0 || offset > tensor_.numel() || tensor.numel() > tensor_.numel() - offset)
        refuse(c10::str("Window.put: ", tensor.numel(), " elements from ", offset, " on don't fit the window of ",
                        tensor_.numel()));
    const at::Tensor from = packed(tensor);
    const int64_t first = offset * static_cast<int64_t>(tensor_.element_size());
    if (void *at = reach(r); at || !from.numel()) {
        if (from.numel())
            std::memcpy(static_cast<char *>(at) + first, from.data_ptr(), from.nbytes());
        return sent({}, async_op, opts.timeout, "put", r);
    }
    at::Tensor header = words(sizeof(PutHeader) / sizeof(int64_t));
    const PutHeader what = {first, static_cast<int64_t>(from.nbytes())};
    std::memcpy(header.data_ptr(), &what, sizeof what);
    Tensors headers{header}, elements{bytes_of(from)};
    std::vector<WorkPtr> messages;
    {
        std::lock_guard<std::mutex> guard(lock_);
        messages.push_back(ranks_->send(headers, r, HEADER));
        messages.push_back(ranks_->send(elements, r, ELEMENTS));
        peers_[r].sent++;
    }
    return sent(std::move(messages), async_op, opts.timeout, "put", r);
}

// Receives what comes by messages, where there is a rank that can't write to this one's tensor itself.
void TuttiWindow::start_thread() {
    const int own = ranks_->getRank();
    bool needed = false;
    for (int r = 0; r < ranks_->getSize(); r++)
        needed |= r != own && (peers_[own].offset < 0 || !memory_of(*ranks_->group(), r, 0));
    puts_->set_tensor(bytes_of(tensor_));
    if (needed && !thread_.joinable())
        thread_ = std::thread(serve, ranks_, puts_);
}

void ReceivedPuts::set_tensor(const at::Tensor &bytes) {
    std::lock_guard<std::mutex> guard(lock);
    bytes_ = bytes;
    changed.notify_all();
}

at::Tensor ReceivedPuts::tensor() {
    std::unique_lock<std::mutex> guard(lock);
    changed.wait(guard, [&] { return bytes_.defined() || closed_; });
    return closed_ ? at::Tensor() : bytes_;
}

void ReceivedPuts::close() {
    std::lock_guard<std::mutex> guard(lock);
    closed_ = true;
    changed.notify_all();
}

void TuttiWindow::serve(c10::intrusive_ptr<ProcessGroupTutti> ranks, std::shared_ptr<ReceivedPuts> puts) {
    try {
        for (;;) {
            at::Tensor header = words(sizeof(PutHeader) / sizeof(int64_t));
            const WorkPtr came = ranks->await_message(header, TT_ANY_SOURCE, HEADER);
            came->wait();
            const int from = came->sourceRank();
            PutHeader what;
            std::memcpy(&what, header.data_ptr(), sizeof what);
            const at::Tensor bytes = puts->tensor(); // that rank may be ahead of this one's tensor_register()
            if (!bytes.defined())
                return;
            if (what.first_byte < 0 || what.bytes < 0 || what.bytes > bytes.numel() - what.first_byte)
                refuse(c10::str("Window: rank ", from, " put ", what.bytes, " bytes at byte ", what.first_byte,
                                " of a window of ", bytes.numel()));
            ranks->await_message(bytes.narrow(0, what.first_byte, what.bytes), from, ELEMENTS)->wait();
            std::lock_guard<std::mutex> guard(puts->lock);
            puts->written[from]++;
            puts->changed.notify_all();
        }
    } catch (...) { // the window is being closed, here or by another rank
        std::lock_guard<std::mutex> guard(puts->lock);
        puts->error = std::current_exception();
        puts->changed.notify_all();
    }
}

void TuttiWindow::end_thread() {
    const bool inherited = ranks_->group()->is_inherited();
    WithoutGil unlocked;
    if (!inherited) {
        puts_->close();
        ranks_->group()->shutdown(milliseconds(0));
    }
    if (!thread_.joinable())
        return;
    if (inherited)
        thread_.detach(); // it is the parent's
    else
        thread_.join();
}

// ---- signals

WorkPtr TuttiWindow::signal(int64_t rank, bool async_op, const c10d::SignalOptions &opts) {
    const int r = rank_of(rank, "signal");
    at::Tensor count = words(1);
    Tensors tensors{count};
    std::vector<WorkPtr> messages;
    {
        std::lock_guard<std::mutex> guard(lock_);
        count.data_ptr<int64_t>()[0] = peers_[r].sent;
        messages.push_back(ranks_->send(tensors, r, SIGNAL));
    }
    return sent(std::move(messages), async_op, opts.timeout, "signal", r);
}

WorkPtr TuttiWindow::wait_signal(int64_t rank, bool async_op, const c10d::WaitSignalOptions &opts) {
    const int r = rank_of(rank, "wait_signal");
    WorkPtr work;
    {
        std::lock_guard<std::mutex> guard(lock_);
        work = std::move(peers_[r].late);
    }
    if (!work)
        work = c10::make_intrusive<SignalWork>(*ranks_, puts_, r, limit_of(opts.timeout));
    if (async_op)
        return work;
    try {
        work->wait(limit_of(opts.timeout));
    } catch (...) {
        std::lock_guard<std::mutex> guard(lock_);
        if (!work->isCompleted())
            peers_[r].late = work;
        throw;
    }
    return work;
}

SignalWork::SignalWork(ProcessGroupTutti &ranks, std::shared_ptr<ReceivedPuts> puts, int from, milliseconds limit)
    : c10d::Work(ranks.getRank(), c10d::OpType::RECV), puts_(std::move(puts)), from_(from), limit_(limit),
      sent_(words(1)), message_(ranks.await_message(sent_, from, SIGNAL)) {}

bool ReceivedPuts::await(int rank, int64_t count, steady_clock::time_point end) {
    std::unique_lock<std::mutex> guard(lock);
    while (written[rank] < count) {
        if (error)
            std::rethrow_exception(error);
        if (steady_clock::now() >= end)
            return false;
        changed.wait_for(guard, left_until(end, milliseconds(ATTENTION_MS)));
        guard.unlock();
        attend_to_python();
        guard.lock();
    }
    return true;
}

bool SignalWork::ends_within(milliseconds time) {
    const auto end = deadline_in(time);
    WithoutGil unlocked;
    return static_cast<TuttiWork *>(message_.get())->ends_within(time) &&
           puts_->await(from_, sent_.data_ptr<int64_t>()[0], end);
}

bool SignalWork::wait(milliseconds timeout) {
    const milliseconds limit = timeout == kNoTimeout ? limit_ : timeout;
    if (!ends_within(limit))
        fail_late("wait_signal", c10::str("no signal of rank ", from_, " came, with what it had put before,"), limit);
    return true;
}

bool SignalWork::isCompleted() {
    try {
        return message_->isCompleted() && ends_within(milliseconds(0));
    } catch (...) { // exception() tells it
        return true;
    }
}

std::exception_ptr SignalWork::exception() const {
    if (auto error = message_->exception())
        return error;
    std::lock_guard<std::mutex> guard(puts_->lock);
    return message_->isSuccess() && puts_->written[from_] < sent_.data_ptr<int64_t>()[0] ? puts_->error : nullptr;
}

bool SignalWork::isSuccess() const {
    if (!message_->isSuccess())
        return false;
    std::lock_guard<std::mutex> guard(puts_->lock);
    return puts_->written[from_] >= sent_.data_ptr<int64_t>()[0];
}

FuturePtr SignalWork::getFuture() {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    auto self = c10::intrusive_ptr<SignalWork>::reclaim_copy(this);
    message_->getFuture()->addCallback([self, future](c10::ivalue::Future &) {
        try {
            self->wait(kNoTimeout);
        } catch (...) {
            return future->setError(std::current_exception());
        }
        future->markCompleted(c10::IValue(Tensors()));
    });
    return future;
}

} // namespace tutti_torch

#endif
