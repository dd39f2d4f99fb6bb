/* Addresses, and TCP sockets with deadlines. A deadline is a moment in tt__now_ms() time; every function here returns
 * by then, except that a name server takes its own time. Sockets made here are close-on-exec, without Nagle's delay,
 * and never raise SIGPIPE. */
#ifndef TT_NET_NET_H
#define TT_NET_NET_H

#include <tutti/base.h>

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* ---- names and addresses (address.c) ---- */

enum { TT__NET_HOST_SIZE = 1025, TT__NET_ADDRESS_SIZE = 80, TT__NET_ENDPOINT_SIZE = 280, TT__INTERFACES_MAX = 32 };

/* Return `host` without the brackets that an IPv6 address may have, as in "[::1]": `host` itself, or the address in
 * `bare`. */
const char *tt__net_bare_host(const char *host, char bare[TT__NET_HOST_SIZE]);

/* Split "HOST:PORT", "[::1]:PORT", "HOST", "[::1]" or "::1", which is an address without a port. *port becomes the text
 * after the colon, or NULL. False: the text has none of these forms, or its host is too long for `host`. */
bool tt__net_split_endpoint(const char *endpoint, char *host, size_t size, const char **port);

/* Resolve as getaddrinfo() does, for stream sockets with these AI_ flags, with three differences: "localhost" is
 * 127.0.0.1 if the system does not know it, an IPv6 address may stand in brackets, and an IPv4-mapped address becomes
 * the IPv4 address. Returns getaddrinfo()'s code; after zero, the caller frees *list by freeaddrinfo(). */
int tt__net_resolve(const char *host, const char *service, int flags, struct addrinfo **list);

/* Is this 127.0.0.0/8, ::1, or the former as an IPv4-mapped address? */
bool tt__net_is_loopback(const struct sockaddr *address);

/* Is the other end of this connection on this machine? Its address is loopback, or the same as our end's: packets with
 * our own address as their source don't come in from outside. */
bool tt__net_is_local(int fd);

/* Turn an IPv4-mapped IPv6 address into the IPv4 address. */
void tt__net_unmap(struct sockaddr_storage *address);

/* Write an address, "127.0.0.1:29500" or "[::1]:29500"; a host and a port as users do, "localhost:29500". */
void tt__net_address_text(const struct sockaddr *address, char text[TT__NET_ADDRESS_SIZE]);
void tt__net_endpoint_text(const char *host, int port, char text[TT__NET_ENDPOINT_SIZE]);

/* One address of an interface that is up. */
typedef struct tt__interface {
    char name[IF_NAMESIZE];
    struct sockaddr_storage address; /* port 0 */
    int prefix;                      /* bits of its subnet */
    bool loopback;
} tt__interface;

/* List this host's addresses, IPv4 and IPv6, except those valid on one link only (fe80::). Returns how many were
 * written, at most `max`; 0: there are none, or errno says why the system can't tell. */
size_t tt__interfaces(tt__interface *list, size_t max);

/* Does the name pass a list like TT_SOCKET_IFNAME's: "eth,=ib0,^docker"? Parts are separated by commas. Each is a
 * prefix of the interface's name, or after "=" its whole name. After "^" (also "^=") such interfaces are left out. If
 * all parts begin with "^", all other interfaces pass. NULL and "": all pass. */
bool tt__interface_passes(const char *list, const char *name);

/* Is `address` in the subnet of this interface? Is it the interface's own? */
bool tt__interface_reaches(const tt__interface *interface, const struct sockaddr *address);
bool tt__interface_has(const tt__interface *interface, const struct sockaddr *address);

/* ---- connecting (connect.c) ---- */

/* Did a call on a non-blocking socket fail only because nothing can be moved now? */
static inline bool tt__net_would_block(int errnum) {
    return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR;
}

/* Connect to host:port over IPv4 or IPv6, trying again until the deadline while nobody listens there or the name is
 * unknown. Success: *fd is the caller's. Errors: TT_ERR_TIMEOUT, or TT_ERR_NET at once if loopback is down, with host,
 * port and the last reason; TT_ERR_SYSTEM, at once: this process may not connect; TT_ERR_ABORTED: see below. */
tt_status tt__net_connect(int *fd, const char *host, int port, int64_t deadline_ms);

/* The same; after `warn_after_ms` without success, and every `warn_every_ms` from then on, a warning in the log says
 * where and why. */
tt_status tt__net_connect_warning(int *fd, const char *host, int port, int64_t deadline_ms, int64_t warn_after_ms,
                                  int64_t warn_every_ms);

/* What ends a thread's waits for the net early: a rank that joins may wait for a peer that will never come, and its
 * launcher tells it that the job goes on without it.
 *
 * From now on this thread's waits for connections, for bytes of them, and for the peers of the library's own transports
 * fail with TT_ERR_ABORTED and the text `why` as soon as `fd` has something to read, or its other side has ended. `fd`
 * and `why` are borrowed; fd -1: nothing interrupts the waits. */
void tt__net_interrupt_by(int fd, const char *why);

/* Suspend interruptions, and resume them: after one, others may have to be told. May be nested. */
void tt__net_interrupt_suspend(void);
void tt__net_interrupt_resume(void);

/* Return the descriptor, for poll(), or -1, which poll() ignores. */
int tt__net_interrupt_fd(void);

/* Fail if the descriptor has something to read. Never blocks. */
tt_status tt__net_interrupted(void);

/* ---- listening (listen.c) ---- */

/* Bind and listen on all addresses of `host` ("localhost" has two), with one port; on all addresses of this machine if
 * `host` is its own name and resolves to loopback. port 0: any free one. fds has room for `max`; *n of them are the
 * caller's, non-blocking; *bound is the port. Errors: TT_ERR_NET unknown host, not an address of this machine, port in
 * use. */
tt_status tt__net_listen(const char *host, int port, int *fds, size_t max, size_t *n, int *bound);

/* Turn off Nagle's delay, for a socket that was accepted. */
void tt__net_no_delay(int fd);

/* Log lines about refused connections: a bounded number in each period; further ones are only counted. Zeroed: none
 * yet. Not locked. */
typedef struct tt__refusals {
    int64_t window_ms; /* when the period began */
    int lines, suppressed;
} tt__refusals;

/* Log one line, "WHO: WHAT", or only count it. */
void tt__refusals_log(tt__refusals *refusals, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* If the period is over, log how many were only counted. */
void tt__refusals_flush(tt__refusals *refusals, const char *who);

/* Log now how many were only counted. */
void tt__refusals_flush_now(tt__refusals *refusals, const char *who);

/* Return when tt__refusals_flush() will have something to log; -1: never. */
int64_t tt__refusals_next_ms(const tt__refusals *refusals);

#endif
