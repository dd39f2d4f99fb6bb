#include "base/process/fork.h"

#include "base/files/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- descriptors ---- */

enum { MOST_DESCRIPTORS = 1 << 16, BITS = 64 };

/* One bit for each descriptor. After a fork, another thread of the parent may have left any other structure half
 * written. */
static _Atomic uint64_t marks[MOST_DESCRIPTORS / BITS];

/* Replace `fd` by a copy of *dead, an unused eventfd. If *dead is -1, make the eventfd: `fd` is closed first, because
 * the process may be at its limit of descriptors. */
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
    for (int i = 0; i < MOST_DESCRIPTORS / BITS; i++) {
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
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        atomic_fetch_or_explicit(&marks[fd / BITS], UINT64_C(1) << fd % BITS, memory_order_relaxed);
}

void tt__fork_fd_forget(int fd) {
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        atomic_fetch_and_explicit(&marks[fd / BITS], ~(UINT64_C(1) << fd % BITS), memory_order_relaxed);
}

/* ---- functions ---- */

enum { MOST_BEGINS = 8 };

static void (*_Atomic begins[MOST_BEGINS])(void);
static _Atomic int count;

void tt__on_new_process(void (*begin)(void)) {
    int mine = count++;
    if (mine < MOST_BEGINS)
        begins[mine] = begin;
}

void tt__new_process_begins(void) {
    for (int i = 0; i < MOST_BEGINS; i++) {
        void (*begin)(void) = begins[i];
        if (begin) /* NULL: another thread of the parent was about to set it */
            begin();
    }
}
