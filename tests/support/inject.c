/* See inject.h. Each function of the X-macro below has a __wrap_ form that our objects call; __real_ is the C
 * library's, or a sanitizer's. */
#include "support/inject.h"
#include "support/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic unsigned armed;
static _Atomic long countdown;
static const char *_Atomic struck;
static _Atomic bool one_byte;
static _Atomic long interrupt_every;
static _Atomic unsigned long interruptible_calls;
static _Atomic int relay_port, direct_port, relay_caller;

void inject_arm(unsigned classes, long nth) {
    struck = NULL;
    countdown = nth;
    armed = classes;
}

const char *inject_disarm(void) {
    armed = 0;
    return struck;
}

void inject_one_byte(bool on) { one_byte = on; }

void inject_interruptions(long every) { interrupt_every = every; }

void inject_relay(int port, int direct, int caller) {
    direct_port = direct;
    relay_caller = caller;
    relay_port = port;
}

static bool strikes(unsigned class, const char *name, int code) {
    if (!(armed & class) || atomic_fetch_sub(&countdown, 1) != 0)
        return false;
    struck = name;
    errno = code;
    return true;
}

/* An interruption now and then: not at a fixed distance, or a loop of as many calls never gets past one of them. */
static bool interrupted(int code) {
    unsigned long every = (unsigned long)interrupt_every;
    if (!every || (atomic_fetch_add(&interruptible_calls, 1) * 0x9e3779b97f4a7c15 >> 33) % every)
        return false;
    errno = code;
    return true;
}

/* Calls that need no more than to fail. */
#define FAILS(type, name, parameters, arguments, failure, class, code) \
    type __real_##name parameters;                                     \
    type __wrap_##name parameters;                                     \
    type __wrap_##name parameters { return strikes(class, #name, code) ? (failure) : __real_##name arguments; }

FAILS(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, INJECT_MAPPINGS, EMFILE)
FAILS(int, ftruncate, (int fd, off_t size), (fd, size), -1, INJECT_MAPPINGS, EINVAL)
FAILS(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), -1, INJECT_MAPPINGS, ENOSPC)
FAILS(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
      (at, size, protection, flags, fd, offset), MAP_FAILED, INJECT_MAPPINGS, ENOMEM)
FAILS(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, INJECT_SOCKETS, EMFILE)
FAILS(int, socketpair, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends), -1,
      INJECT_SOCKETS, EMFILE)
FAILS(int, bind, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size), -1, INJECT_SOCKETS,
      EADDRINUSE)
FAILS(int, listen, (int fd, int backlog), (fd, backlog), -1, INJECT_SOCKETS, EADDRINUSE)
FAILS(int, accept, (int fd, struct sockaddr *address, socklen_t *size), (fd, address, size), -1, INJECT_SOCKETS, EMFILE)
FAILS(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags), (fd, address, size, flags), -1,
      INJECT_SOCKETS, EMFILE)
FAILS(int, getsockname, (int fd, struct sockaddr *address, socklen_t *size), (fd, address, size), -1, INJECT_SOCKETS,
      ENOBUFS)
FAILS(int, getpeername, (int fd, struct sockaddr *address, socklen_t *size), (fd, address, size), -1, INJECT_SOCKETS,
      ENOTCONN)
FAILS(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size), (fd, level, name, value, size),
      -1, INJECT_SOCKETS, ENOBUFS)
FAILS(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size), (fd, level, name, value, size), -1,
      INJECT_SOCKETS, ENOBUFS)
FAILS(int, epoll_create1, (int flags), (flags), -1, INJECT_SOCKETS, EMFILE)
FAILS(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event), -1,
      INJECT_SOCKETS, ENOMEM)
FAILS(int, getaddrinfo, (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result),
      (node, service, hints, result), EAI_AGAIN, INJECT_SOCKETS, EAGAIN)
FAILS(int, getifaddrs, (struct ifaddrs * *addresses), (addresses), -1, INJECT_SOCKETS, ENOBUFS)
FAILS(int, pipe2, (int ends[2], int flags), (ends, flags), -1, INJECT_SYSTEM, EMFILE)
FAILS(int, dup, (int fd), (fd), -1, INJECT_SYSTEM, EMFILE)
FAILS(int, eventfd, (unsigned value, int flags), (value, flags), -1, INJECT_SYSTEM, EMFILE)
FAILS(int, timerfd_create, (int clock, int flags), (clock, flags), -1, INJECT_SYSTEM, EMFILE)
FAILS(ssize_t, getrandom, (void *buf, size_t size, unsigned flags), (buf, size, flags), -1, INJECT_SYSTEM, EIO)
FAILS(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*body)(void *), void *arg),
      (thread, how, body, arg), EAGAIN, INJECT_SYSTEM, EAGAIN)

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode) {
    return strikes(INJECT_SYSTEM, "open", EMFILE) ? -1 : __real_open(path, flags, mode);
}

/* ---- bytes */

static bool is_stream(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return !__real_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

static bool never_waits(int fd, int flags) { return flags & MSG_DONTWAIT || fcntl(fd, F_GETFL) & O_NONBLOCK; }

/* Is this transfer to fail or to be interrupted before it happens? */
static bool hindered(const char *name, int fd, int flags, int code) {
    if (strikes(INJECT_SOCKETS, name, code))
        return true;
    return interrupt_every && is_stream(fd) && interrupted(never_waits(fd, flags) ? EAGAIN : EINTR);
}

static size_t shortened(int fd, size_t size) { return one_byte && size > 1 && is_stream(fd) ? 1 : size; }

#define MOVES(name, constant, code)                                                     \
    ssize_t __real_##name(int fd, constant void *buf, size_t size, int flags);          \
    ssize_t __wrap_##name(int fd, constant void *buf, size_t size, int flags);          \
    ssize_t __wrap_##name(int fd, constant void *buf, size_t size, int flags) {         \
        return hindered(#name, fd, flags, code) ? -1                                    \
               : flags & MSG_PEEK               ? __real_##name(fd, buf, size, flags)   \
                                                : __real_##name(fd, buf, shortened(fd, size), flags); \
    }
MOVES(send, const, EPIPE)
MOVES(recv, , ECONNRESET)

/* On files and pipes, read and write are left alone. */
#define MOVES_PLAIN(name, constant, code)                                                       \
    ssize_t __real_##name(int fd, constant void *buf, size_t size);                             \
    ssize_t __wrap_##name(int fd, constant void *buf, size_t size);                             \
    ssize_t __wrap_##name(int fd, constant void *buf, size_t size) {                            \
        if (!is_stream(fd))                                                                     \
            return __real_##name(fd, buf, size);                                                \
        return hindered(#name, fd, 0, code) ? -1 : __real_##name(fd, buf, shortened(fd, size)); \
    }
MOVES_PLAIN(write, const, EPIPE)
MOVES_PLAIN(read, , ECONNRESET)

/* The first byte of the first piece that is not empty, as a list of one. */
static struct iovec first_byte(const struct iovec *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i].iov_len)
            return (struct iovec){list[i].iov_base, 1};
    return (struct iovec){NULL, 0};
}

#define MOVES_LIST(name, code)                                                                       \
    ssize_t __real_##name(int fd, const struct iovec *list, int n);                                  \
    ssize_t __wrap_##name(int fd, const struct iovec *list, int n);                                  \
    ssize_t __wrap_##name(int fd, const struct iovec *list, int n) {                                 \
        if (hindered(#name, fd, 0, code))                                                            \
            return -1;                                                                               \
        struct iovec byte = first_byte(list, (size_t)n);                                             \
        return one_byte && is_stream(fd) ? __real_##name(fd, &byte, 1) : __real_##name(fd, list, n); \
    }
MOVES_LIST(writev, EPIPE)
MOVES_LIST(readv, ECONNRESET)

/* Descriptors travel with their first byte, so a shortened message keeps them. */
#define MOVES_MESSAGE(name, constant, code)                                     \
    ssize_t __real_##name(int fd, constant struct msghdr *message, int flags);  \
    ssize_t __wrap_##name(int fd, constant struct msghdr *message, int flags);  \
    ssize_t __wrap_##name(int fd, constant struct msghdr *message, int flags) { \
        if (hindered(#name, fd, flags, code))                                   \
            return -1;                                                          \
        if (!one_byte || !is_stream(fd))                                        \
            return __real_##name(fd, message, flags);                           \
        struct iovec byte = first_byte(message->msg_iov, message->msg_iovlen);  \
        struct msghdr shorter = *message;                                       \
        shorter.msg_iov = &byte;                                                \
        shorter.msg_iovlen = 1;                                                 \
        ssize_t n = __real_##name(fd, &shorter, flags);                         \
        give_back(message, &shorter);                                           \
        return n;                                                               \
    }
static void keep_as_is(const struct msghdr *message, const struct msghdr *shorter) {
    (void)message;
    (void)shorter;
}
static void fill_in(struct msghdr *message, const struct msghdr *shorter) {
    message->msg_flags = shorter->msg_flags;
    message->msg_controllen = shorter->msg_controllen;
    message->msg_namelen = shorter->msg_namelen;
}
#define give_back keep_as_is
MOVES_MESSAGE(sendmsg, const, EPIPE)
#undef give_back
#define give_back fill_in
MOVES_MESSAGE(recvmsg, , ECONNRESET)
#undef give_back

/* ---- waiting */

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    return strikes(INJECT_SOCKETS, "poll", ENOMEM) || interrupted(EINTR) ? -1 : __real_poll(fds, n, timeout_ms);
}

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask) {
    return strikes(INJECT_SOCKETS, "ppoll", ENOMEM) || interrupted(EINTR) ? -1 : __real_ppoll(fds, n, timeout, mask);
}

int __real_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms) {
    return strikes(INJECT_SOCKETS, "epoll_wait", EINVAL) || interrupted(EINTR)
               ? -1
               : __real_epoll_wait(epoll, events, n, timeout_ms);
}

int __real_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask) {
    return strikes(INJECT_SOCKETS, "epoll_pwait2", EINVAL) || interrupted(EINTR)
               ? -1
               : __real_epoll_pwait2(epoll, events, n, timeout, mask);
}

/* ---- connecting */

static int port_of(const struct sockaddr *address) {
    return address->sa_family == AF_INET    ? ntohs(((const struct sockaddr_in *)address)->sin_port)
           : address->sa_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)address)->sin6_port)
                                            : 0;
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);

/* The relay answers at once, on the same machine, so its connection may as well be made here and now. A socket of the
 * other family is replaced. */
static int connect_to_relay(int fd, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_in relay = {.sin_family = AF_INET, .sin_port = htons((uint16_t)relay_port)};
    relay_call call = {.caller = relay_caller, .address_size = size};
    int flags = fcntl(fd, F_GETFL), fd_flags = fcntl(fd, F_GETFD);
    relay.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&call.address, address, size);
    int s = __real_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = s >= 0 && !__real_connect(s, (struct sockaddr *)&relay, sizeof relay) &&
                     __real_send(s, &call, sizeof call, MSG_NOSIGNAL) == (ssize_t)sizeof call &&
                     dup3(s, fd, fd_flags & FD_CLOEXEC ? O_CLOEXEC : 0) == fd && !fcntl(fd, F_SETFL, flags);
    int code = errno;
    if (s >= 0)
        close(s);
    errno = code;
    return connected ? 0 : -1;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
    if (strikes(INJECT_SOCKETS, "connect", ECONNREFUSED))
        return -1;
    int port = relay_port ? port_of(address) : 0;
    return port && port != direct_port ? connect_to_relay(fd, address, size) : __real_connect(fd, address, size);
}

/* ---- memory, every block of which is remembered until it is freed */

enum { TABLE = 1 << 20 };
static void *blocks[TABLE]; /* open addressing; GONE where a block was */
static long live;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
#define GONE ((void *)(uintptr_t)1)

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **p, size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
int __real_vasprintf(char **text, const char *format, va_list arguments);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
int __wrap_vasprintf(char **text, const char *format, va_list arguments);
int __wrap_asprintf(char **text, const char *format, ...);

static size_t place_of(const void *p) { return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 44); }

static void *remember(void *p) {
    if (!p)
        return p;
    pthread_mutex_lock(&blocks_lock);
    size_t i = place_of(p) % TABLE;
    while (blocks[i] && blocks[i] != GONE)
        i = (i + 1) % TABLE;
    blocks[i] = p;
    live++;
    pthread_mutex_unlock(&blocks_lock);
    return p;
}

/* Blocks that the C library allocated for us (getline) are not in the table. */
static void forget(void *p) {
    pthread_mutex_lock(&blocks_lock);
    size_t i = place_of(p) % TABLE;
    while (blocks[i] && blocks[i] != p)
        i = (i + 1) % TABLE;
    if (p && blocks[i] == p) {
        blocks[i] = blocks[(i + 1) % TABLE] ? GONE : NULL;
        live--;
    }
    pthread_mutex_unlock(&blocks_lock);
}

long inject_live_blocks(void) {
    pthread_mutex_lock(&blocks_lock);
    long n = live;
    pthread_mutex_unlock(&blocks_lock);
    return n;
}

void *__wrap_malloc(size_t size) {
    return strikes(INJECT_MEMORY, "malloc", ENOMEM) ? NULL : remember(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size) {
    return strikes(INJECT_MEMORY, "calloc", ENOMEM) ? NULL : remember(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t size) {
    if (strikes(INJECT_MEMORY, "realloc", ENOMEM))
        return NULL;
    forget(p);
    void *moved = __real_realloc(p, size);
    remember(moved || !size ? moved : p);
    return moved;
}

void __wrap_free(void *p) {
    forget(p);
    __real_free(p);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return strikes(INJECT_MEMORY, "aligned_alloc", ENOMEM) ? NULL : remember(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t size) {
    if (strikes(INJECT_MEMORY, "posix_memalign", ENOMEM))
        return ENOMEM;
    int code = __real_posix_memalign(p, alignment, size);
    if (!code)
        remember(*p);
    return code;
}

char *__wrap_strdup(const char *text) {
    return strikes(INJECT_MEMORY, "strdup", ENOMEM) ? NULL : remember(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t n) {
    return strikes(INJECT_MEMORY, "strndup", ENOMEM) ? NULL : remember(__real_strndup(text, n));
}

int __wrap_vasprintf(char **text, const char *format, va_list arguments) {
    if (strikes(INJECT_MEMORY, "vasprintf", ENOMEM))
        return -1;
    int n = __real_vasprintf(text, format, arguments);
    if (n >= 0)
        remember(*text);
    return n;
}

int __wrap_asprintf(char **text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = __wrap_vasprintf(text, format, arguments);
    va_end(arguments);
    return n;
}
