/* How many devices there are. Counting begins the driver, after which CUDA works in no child that is forked later, such
 * as those of tt_spawn(). So a child counts, as long as this process has not used CUDA. */
#include "base/hash.h"
#include "tensor/cuda/device/cuda_state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 60, LOOK_MS = 100 };

static tt_status fail_driver(void) {
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    return tt__cuda_host->fail(TT_ERR_UNSUPPORTED,
                               "the NVIDIA driver is too old or missing: it is one for CUDA %d.%d, and this build "
                               "needs one for CUDA %d.%d or later (0.0: there is no libcuda.so.1)",
                               driver / 1000, driver % 1000 / 10, runtime / 1000, 0);
}

tt_status tt__cuda_count_here(int *count) {
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorNoDevice) {
        (void)cudaGetLastError();
        return TT_OK;
    }
    if (error == cudaErrorInsufficientDriver) {
        (void)cudaGetLastError();
        return fail_driver();
    }
    if (error == cudaErrorInitializationError)
        return tt__cuda_check(error, "counting CUDA devices, which a child of a process that had used CUDA before "
                                     "fork() can't,");
    return tt__cuda_check(error, "counting CUDA devices");
}

/* ---- asking a child ---- */

static time_t seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void answer_count(int to) {
    int count;
    if (tt__cuda_count_here(&count))
        count = -1;
    _exit(write(to, &count, sizeof count) == sizeof count ? 0 : 1);
}

static bool counter_has_ended(pid_t child) {
    pid_t ended = waitpid(child, NULL, WNOHANG);
    return ended == child || (ended < 0 && errno == ECHILD); /* the program has waited for it */
}

/* The child's count; -1: it can't count, -2: it crashed, or hangs. */
static int hear_count(pid_t child, int from) {
    const time_t end = seconds_now() + PATIENCE_S;
    struct pollfd ready = {.fd = from, .events = POLLIN};
    int count = -2;
    bool gone = false;
    do {
        gone = counter_has_ended(child); /* before the look: what it has written is there then */
        if (poll(&ready, 1, gone ? 0 : LOOK_MS) > 0 && read(from, &count, sizeof count) != sizeof count)
            count = -2;
    } while (!gone && count == -2 && !(ready.revents & POLLHUP) && seconds_now() < end);
    if (!gone && count == -2)
        kill(child, SIGKILL);
    while (!gone && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return count;
}

/* Let a child count. -3: no child could be made. */
static int ask_child(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -3;
    pid_t child = fork();
    if (!child)
        answer_count(ends[1]);
    close(ends[1]);
    int count = child < 0 ? -3 : hear_count(child, ends[0]);
    close(ends[0]);
    return count;
}

/* ---- what is known ---- */

/* The child's last answer, plus 1, and which CUDA_VISIBLE_DEVICES it was for; 0: there is none. Without a lock, which
 * a child forked meanwhile would find held. */
static _Atomic uint64_t known;

static uint32_t visible_hash(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible ? (uint32_t)tt__fnv_text(TT__FNV, visible) : 0;
}

/* A process that uses CUDA counts by itself; so does one whose child could not, for the text of the error. */
tt_status tt__cuda_count(int *count) {
    const uint64_t hash = visible_hash(), last = known;
    tt_status status = tt__cuda_check_forked("CUDA");
    *count = 0;
    if (status || tt__cuda_is_used())
        return status ? status : tt__cuda_count_here(count);
    int told = last && last >> 32 == hash ? (int)(uint32_t)last - 1 : ask_child();
    if (told == -2)
        return tt__cuda_host->fail(TT_ERR_SYSTEM,
                                   "counting CUDA devices failed: the driver crashed, or has not "
                                   "answered for %d s",
                                   PATIENCE_S);
    if (told < 0)
        return tt__cuda_count_here(count);
    known = hash << 32 | (uint32_t)(told + 1);
    *count = told;
    return TT_OK;
}
