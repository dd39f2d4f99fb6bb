#include "batch.hpp"

#include "deadline.hpp"

#if TUTTI_TORCH_2

#include <algorithm>
#include <atomic>

namespace tutti_torch {

using Futures = std::vector<FuturePtr>;

BatchWork::BatchWork(int rank, std::vector<WorkPtr> parts)
    : c10d::Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool BatchWork::isCompleted() {
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &part) { return part->isCompleted(); });
}

bool BatchWork::isSuccess() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr &part) { return part->isSuccess(); });
}

std::exception_ptr BatchWork::exception() const {
    for (const WorkPtr &part : parts_)
        if (auto error = part->exception())
            return error;
    return nullptr;
}

Tensors BatchWork::result() {
    Tensors all;
    for (const WorkPtr &part : parts_) {
        Tensors some = part->result();
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

bool BatchWork::wait(std::chrono::milliseconds timeout) {
    const auto deadline = deadline_in(timeout);
    for (const WorkPtr &part : parts_) {
        const auto left = std::max(left_until(deadline, timeout), std::chrono::milliseconds(1));
        part->wait(timeout == kNoTimeout ? timeout : left);
    }
    return true;
}

static void complete(c10::ivalue::Future &joined, const Futures &parts) {
    Tensors all;
    for (const FuturePtr &part : parts) {
        if (part->hasError())
            return joined.setError(part->exception_ptr());
        if (part->value().isTensorList())
            for (const at::Tensor &x : part->value().toTensorVector())
                all.push_back(x);
    }
    joined.markCompleted(c10::IValue(all));
}

FuturePtr BatchWork::getFuture() {
    auto joined = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    auto futures = std::make_shared<Futures>();
    for (const WorkPtr &part : parts_)
        futures->push_back(part->getFuture());
    if (futures->empty())
        complete(*joined, *futures);
    auto left = std::make_shared<std::atomic<size_t>>(futures->size());
    for (const FuturePtr &part : Futures(*futures))
        part->addCallback([joined, futures, left](c10::ivalue::Future &) {
            if (--*left)
                return;
            complete(*joined, *futures);
            futures->clear(); // they hold this callback
        });
    return joined;
}

uint64_t BatchWork::getSequencenumber() const { return parts_.empty() ? 0 : parts_.back()->getSequencenumber(); }

} // namespace tutti_torch

#endif
