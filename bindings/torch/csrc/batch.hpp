// Calls between startCoalescing() and endCoalescing(): each begins at once, and one work stands for all.
#pragma once

#include "compat.hpp"

#if TUTTI_TORCH_2

namespace tutti_torch {

class BatchWork : public c10d::Work {
  public:
    BatchWork(int rank, std::vector<WorkPtr> parts);
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override; // of the first part that failed
    Tensors result() override;
    void synchronize() override { wait(kNoTimeout); }
    bool wait(std::chrono::milliseconds timeout) override; // the time counts for all together
    FuturePtr getFuture() override;                        // the parts' tensors, one after the other
    uint64_t getSequencenumber() const override;           // of the last part

  private:
    std::vector<WorkPtr> parts_;
};

} // namespace tutti_torch

#endif
