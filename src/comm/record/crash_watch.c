/* Telling the launcher of a crash, in the signal's handler; only functions that are safe there are called. The process
 * does not describe itself: the launcher attaches to it as a debugger does (cli/look/process_stacks.c), so nothing in
 * the crashed process need be intact. */
#include "comm/record/crash_watch.h"

#include "base/process/waits.h"
#include "net/job/job_socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

static struct {
    _Atomic int socket; /* the launcher's; -1: none */
    _Atomic int owner;  /* the process that caught the signals; a forked child is another */
    int wait_ms;        /* how long a thread that crashes waits for it */
    int launcher;       /* its pid; 0: not known */
    _Atomic int thread; /* the one that crashed first */
} crash = {.socket = -1};

/* A stack for the handler in the thread that joins the job, most often the main thread: its own stack may be used
 * up. */
static _Alignas(64) char crash_stack[64 << 10];

#if defined(__x86_64__)
static uint64_t *crash_pc(ucontext_t *at) { return (uint64_t *)&at->uc_mcontext.gregs[REG_RIP]; }
#elif defined(__aarch64__)
static uint64_t *crash_pc(ucontext_t *at) { return (uint64_t *)&at->uc_mcontext.pc; }
#elif defined(__riscv)
static uint64_t *crash_pc(ucontext_t *at) { return (uint64_t *)&at->uc_mcontext.__gregs[REG_PC]; }
#else
static uint64_t *crash_pc(ucontext_t *at) {
    static uint64_t unknown;
    (void)at;
    return &unknown;
}
#endif

/* The thread called an address that is no code, so its stack can't be walked. Undo the call. */
static void undo_call(ucontext_t *at) {
#if defined(__x86_64__)
    greg_t *sp = &at->uc_mcontext.gregs[REG_RSP];
    *crash_pc(at) = *(const uint64_t *)(uintptr_t)*sp - 1;
    *sp += 8;
#elif defined(__aarch64__)
    at->uc_mcontext.pc = at->uc_mcontext.regs[30] - 4;
#else
    (void)at;
#endif
}

static int64_t crash_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wait until the launcher answers or is gone. */
static void await_launcher(int socket) {
    int64_t until = crash_clock_ms() + crash.wait_ms, left;
    while ((left = until - crash_clock_ms()) > 0) {
        struct pollfd answer = {.fd = socket, .events = POLLIN};
        if (poll(&answer, 1, (int)left) > 0)
            return;
    }
}

static void tell_launcher(int sig, const siginfo_t *info, ucontext_t *context) {
    tt__job_packet packet = {.crash = {.signal = sig, .code = info->si_code, .thread = (int32_t)gettid()}};
    int socket = atomic_load(&crash.socket);
    mcontext_t before;
    if (socket < 0)
        return;
    if (info->si_code > 0 && sig != SIGABRT && sig != SIGSYS)
        packet.crash.address = (uint64_t)(uintptr_t)info->si_addr;
    packet.crash.jumped = sig == SIGSEGV && info->si_code > 0 && packet.crash.address == *crash_pc(context);
    memcpy(&before, &context->uc_mcontext, sizeof before);
    if (packet.crash.jumped)
        undo_call(context);
    packet.crash.pc = *crash_pc(context);
    if (crash.launcher) /* where yama restricts ptrace, the launcher's children need this permission */
        prctl(PR_SET_PTRACER, (unsigned long)crash.launcher, 0, 0, 0);
    if (tt__job_send(socket, TT__JOB_CRASH, &packet, -1))
        await_launcher(socket);
    memcpy(&context->uc_mcontext, &before, sizeof before);
}

/* Tell the launcher, then send the signal again with its siginfo, which core dumps show. It arrives when this
 * returns. */
static void crash_handler(int sig, siginfo_t *info, void *context) {
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    int self = (int)gettid(), first = 0, errnum = errno;
    if (getpid() == atomic_load(&crash.owner)) {
        if (atomic_compare_exchange_strong(&crash.thread, &first, self))
            tell_launcher(sig, info, context);
        else if (first != self) /* else this is a crash within the handler */
            tt__sleep_ms(crash.wait_ms);
    }
    sigaction(sig, &by_default, NULL);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), self, sig, info))
        syscall(SYS_tgkill, getpid(), self, sig);
    errno = errnum;
}

static void give_stack(void) {
    stack_t stack, own = {.ss_sp = crash_stack, .ss_size = sizeof crash_stack};
    if (!sigaltstack(NULL, &stack) && stack.ss_flags & SS_DISABLE)
        sigaltstack(&own, NULL);
}

/* Remove the handlers: a library that was loaded late may be unloaded. */
__attribute__((destructor)) static void leave_signals(void) {
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct sigaction now;
    stack_t stack, none = {.ss_flags = SS_DISABLE};
    for (size_t i = 0; i < sizeof crash_signals / sizeof *crash_signals; i++)
        if (!sigaction(crash_signals[i], NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction == crash_handler)
            sigaction(crash_signals[i], &by_default, NULL);
    if (!sigaltstack(NULL, &stack) && stack.ss_sp == crash_stack)
        sigaltstack(&none, NULL);
}

void tt__crash_watch(int socket) {
    struct sigaction action = {.sa_sigaction = crash_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK}, now;
    crash.wait_ms = (int)tt__job_crash_ms();
    if (socket < 0 || !crash.wait_ms)
        return;
    crash.launcher = (int)tt__job_socket_peer(socket);
    atomic_store(&crash.thread, 0);
    atomic_store(&crash.socket, socket);
    if (atomic_exchange(&crash.owner, (int)getpid()) == (int)getpid())
        return; /* this process caught them before, and the program may have decided otherwise since */
    give_stack();
    for (size_t i = 0; i < sizeof crash_signals / sizeof *crash_signals; i++)
        if (!sigaction(crash_signals[i], NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
            sigaction(crash_signals[i], &action, NULL);
}

void tt__crash_unwatch(int socket) {
    if (socket >= 0)
        atomic_compare_exchange_strong(&crash.socket, &socket, -1);
}
