/* Calls into the system that fail on purpose, in a program linked with tt_inject() (tests/support/CMakeLists.txt),
 * which puts inject.c between our own objects and the C library: `ld --wrap`, so that sanitizers keep working and
 * libraries are left alone. Nothing is injected until the test asks for it. Counters count the calls of all threads of
 * the process. */
#ifndef TESTS_SUPPORT_INJECT_H
#define TESTS_SUPPORT_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    INJECT_MEMORY = 1,   /* malloc and its kin: NULL */
    INJECT_MAPPINGS = 2, /* memfd_create, ftruncate, fallocate, mmap */
    INJECT_SOCKETS = 4,  /* socket, connect, accept, send, recv, poll, epoll and their kin */
    INJECT_SYSTEM = 8    /* open, pipes, event descriptors, threads, random numbers */
};

/* The nth call (0 = the next) of these classes from now on fails, with an errno that it may have; once. */
void inject_arm(unsigned classes, long nth);

/* End inject_arm(). Returns the name of the function that failed, or NULL if there were fewer calls. */
const char *inject_disarm(void);

/* From now on: stream sockets take and give at most one byte a call; a pipe likewise. Every byte is its own system
 * call, so keep it short. */
void inject_one_byte(bool on);

/* From now on one of n calls that may be interrupted fails with EINTR, and one of n on a non-blocking socket with
 * EAGAIN; 0 = none. */
void inject_interruptions(long every);

/* Blocks that our objects allocated and did not free. */
long inject_live_blocks(void);

/* Connections that are not to `port` go through a relay that listens at 127.0.0.1:`relay_port` instead, which is told
 * first who calls (`caller`) and the address that was meant (relay.h). 0: no more. */
void inject_relay(int relay_port, int port, int caller);

#endif
