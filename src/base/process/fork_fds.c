#include "base/process/fork_fds.h"

#include "base/files/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST = 1 << 16, BITS = 64 };

/* One bit for each descriptor: the child of a process with threads can read no other structure safely. */
static _Atomic uint64_t marks[MOST / BITS];

/* Replace `fd` by a descriptor of nothing, *dead, which is -1 at first. The first `fd` gets it: closing that one makes
 * room where the process may have no more descriptors. */
static void replace_in_child(int fd, int *dead) {
    if (*dead >= 0) {
        dup3(*dead, fd, O_CLOEXEC);
        return;
    }
    close(fd);
    int made = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (made >= 0 && made != fd) {
        dup3(made, fd, O_CLOEXEC);
        close(made);
    }
    if (made >= 0)
        *dead = fd;
}

/* Runs in the child, before fork() returns there. */
static void drop_in_child(void) {
    int dead = -1;
    for (int i = 0; i < MOST / BITS; i++) {
        uint64_t left = atomic_load_explicit(&marks[i], memory_order_relaxed);
        if (left)
            atomic_store_explicit(&marks[i], 0, memory_order_relaxed);
        for (; left; left &= left - 1)
            replace_in_child(i * BITS + __builtin_ctzll(left), &dead);
    }
}

static void register_drop(void) { pthread_atfork(NULL, NULL, drop_in_child); }

void tt__fork_fd_drop(int fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_drop);
    if (fd >= 0 && fd < MOST)
        atomic_fetch_or_explicit(&marks[fd / BITS], UINT64_C(1) << fd % BITS, memory_order_relaxed);
}

void tt__fork_fd_forget(int fd) {
    if (fd >= 0 && fd < MOST)
        atomic_fetch_and_explicit(&marks[fd / BITS], ~(UINT64_C(1) << fd % BITS), memory_order_relaxed);
}
