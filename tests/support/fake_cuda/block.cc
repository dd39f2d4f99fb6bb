/* Blocks of a kernel. */
#include "block.h"

#include <ucontext.h>

#include <cstdlib>
#include <memory>
#include <vector>

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum { STACK = 64 << 10 };

/* A thread of a block. */
struct coroutine {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    bool ended = false;
};

struct block {
    ucontext_t outside;
    std::vector<coroutine> threads;
    const std::function<void()> *body;
    unsigned current;
};

thread_local block *running;

void begin_thread() {
    (*running->body)();
    running->threads[running->current].ended = true;
    /* uc_link leads outside */
}

void make_threads(block *b, unsigned n) {
    if (b->threads.size() != n)
        b->threads = std::vector<coroutine>(n);
    for (coroutine &c : b->threads) {
        getcontext(&c.context);
        c.context.uc_stack.ss_sp = c.stack.get();
        c.context.uc_stack.ss_size = STACK;
        c.context.uc_link = &b->outside;
        c.ended = false;
        makecontext(&c.context, begin_thread, 0);
    }
}

/* Let each thread run to its next wait or its end, until all have ended. */
void run_together(block *b, unsigned n) {
    make_threads(b, n);
    bool more = true;
    for (unsigned round = 0; more; round++) {
        more = false;
        for (unsigned i = 0; i < n; i++) {
            unsigned t = round % 2 ? n - 1 - i : i; /* neither order may be counted on */
            if (b->threads[t].ended)
                continue;
            more = true;
            b->current = t;
            threadIdx = dim3{t, 0, 0};
            swapcontext(&b->outside, &b->threads[t].context);
        }
    }
}

} /* namespace */

void __syncthreads() {
    if (!running)
        abort(); /* a kernel that was launched as one whose threads don't wait */
    unsigned self = running->current;
    swapcontext(&running->threads[self].context, &running->outside);
}

void fake_run_blocks(unsigned blocks, unsigned threads, bool waits, const std::function<void()> &body) {
    static thread_local block together;
    gridDim = dim3{blocks, 1, 1};
    blockDim = dim3{threads, 1, 1};
    for (unsigned i = 0; i < blocks; i++) {
        blockIdx = dim3{i, 0, 0};
        if (waits) {
            running = &together;
            together.body = &body;
            run_together(&together, threads);
            running = nullptr;
            continue;
        }
        for (unsigned t = 0; t < threads; t++) {
            threadIdx = dim3{t, 0, 0};
            body();
        }
    }
}
