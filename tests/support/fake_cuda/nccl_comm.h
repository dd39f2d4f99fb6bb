/* NCCL between processes of one host, for tests: what the files nccl*.cc share.
 *
 * The ranks of a communicator share memory: a file without a name, which others open by the process and descriptor that
 * made it. All data go through mailboxes there, one for each pair of ranks, in pieces. A collective is a set of
 * messages; what one rank takes for another call than its peer stays in the mailbox, so the call hangs, as NCCL's does.
 *
 * Calls don't block: they may return ncclInProgress, for a number of looks that is drawn, and a communicator's first
 * collective, or first message with a rank, until the peers have come to it, too. Only then is the work put on the
 * stream. What NCCL forbids is ncclInvalidUsage and a line on stderr: a call while another is in progress, from two
 * threads at once, without the communicator's device as the current context, or on a communicator that is gone.
 *
 * Environment variables, read at each call. NAME is that of a function without "nccl", RANK that in the communicator
 * (of MemAlloc, the machine's device):
 *   FAKE_NCCL_SEED=7            what is drawn (1); 0: no call is ever in progress
 *   FAKE_NCCL_VERSION=21403     (22809)
 *   FAKE_NCCL_FAIL=NAME@RANK    the call returns ncclSystemError
 *   FAKE_NCCL_HANG=NAME@RANK    the call never gets further: it stays in progress; an operation stays on its stream
 *                               until it is aborted; CommAbort does not return
 *   FAKE_NCCL_WINDOWS=0         ncclCommWindowRegister() succeeds, but gives no window, as without peers' memory
 *   FAKE_NCCL_ASYNC=NAME@RANK   after the call, ncclCommGetAsyncError() tells ncclRemoteError */
#ifndef FAKE_CUDA_NCCL_COMM_H
#define FAKE_CUDA_NCCL_COMM_H

#include "nccl/nccl_abi.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

enum { FAKE_RANKS = 8, FAKE_PIECE = 16 << 10 };

struct fake_mailbox {
    std::atomic<bool> full;
    size_t bytes, total; /* of this piece, of the message */
    char signature[64];  /* of the call that the message belongs to */
    char data[FAKE_PIECE];
};

/* What ranks share. */
struct fake_area {
    std::atomic<int> arrived, connected;
    int devices[FAKE_RANKS];
    std::atomic<bool> sends[FAKE_RANKS][FAKE_RANKS], receives[FAKE_RANKS][FAKE_RANKS]; /* has come to its first one */
    struct {
        std::atomic<int> round, answer; /* splits that it came to, and in which it gave `place` */
        int color, key;
        char place[64];
    } splits[FAKE_RANKS];
    struct {
        std::atomic<int> round; /* registrations that it came to */
        size_t bytes;
    } windows[FAKE_RANKS];
    fake_mailbox boxes[FAKE_RANKS][FAKE_RANKS]; /* from, to */
};

/* What tasks on streams need of a communicator, which may be gone before them. */
struct fake_core {
    int rank, size;
    fake_area *area;
    std::atomic<bool> aborted{false};
    std::atomic<int> running{0}, queued{0};
    ~fake_core();
};

struct ncclComm {
    std::shared_ptr<fake_core> core = std::make_shared<fake_core>();
    int device = -1;
    int own_file = -1; /* of the area, until all have opened it */
    ncclResult_t state = ncclSuccess;
    std::string last_error;
    int looks = 0;               /* for which the call stays in progress */
    std::function<bool()> ready; /* have the peers come? */
    std::function<void()> then;  /* what happens when the call is over */
    std::atomic<int> threads{0};
    std::map<int, double> factors; /* of ops */
    bool connected = false, finalized = false;
    int splits = 0, registrations = 0;
    std::map<const char *, ncclWindow_t> windows; /* by their beginnings */
    std::mt19937 draws;
};

/* An operation of a group, or a group of one. */
struct fake_operation {
    std::string name; /* "AllReduce" */
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    int op, peer; /* peer, root, or -1 */
    double factor;
    bool hangs;
};

extern "C" {
#define FAKE_NCCL_FUNCTION(result, name, parameters) result nccl##name parameters;
NCCL_ABI_FUNCTIONS(FAKE_NCCL_FUNCTION)
NCCL_ABI_WINDOW_FUNCTIONS(FAKE_NCCL_FUNCTION)
#undef FAKE_NCCL_FUNCTION
}

/* ---- nccl.cc */

/* Communicators that were aborted, but not finalized before: peers may lack results. Tests find it by dlsym(). */
extern "C" unsigned long fake_nccl_cut(void);

/* Is variable NAME@RANK this call? */
bool fake_nccl_is(const char *variable, const char *name, int rank);

/* A call is entered: ncclSuccess, or what it must return. It leaves when the object goes. */
struct fake_call {
    ncclComm_t comm;
    ncclResult_t result;
    fake_call(ncclComm_t comm, const char *name);
    ~fake_call();
};

ncclResult_t fake_misuse(const char *name, const char *what);

/* The call is in progress until `ready`, then `then` happens. Returns what the call must return. */
ncclResult_t fake_proceed(ncclComm_t comm, std::function<bool()> ready, std::function<void()> then);

/* ---- nccl_run.cc: on a stream's thread */

size_t fake_nccl_size(ncclDataType_t type);
double fake_nccl_factor(const void *scalar, ncclDataType_t type);
void fake_nccl_run(fake_core &core, const std::vector<fake_operation> &group);

/* ---- nccl_window.cc */

/* An operation begins with what it reads; a communicator ends. */
void fake_window_used(ncclComm_t comm, const void *at, size_t bytes);
void fake_windows_end(ncclComm_t comm);

/* Numbers that tests find by dlsym(): windows that there are; that there were; operations that read a window; memories
 * of ncclMemAlloc() that there are. */
extern "C" unsigned long fake_nccl_windows(void), fake_nccl_windows_made(void), fake_nccl_window_calls(void),
    fake_nccl_memories(void);

#endif
