/* Sockets with deadlines. A deadline is a moment in tt__now_ms() time; every function here returns by then, except
 * that a name server takes its own time. Sockets made here are close-on-exec, without Nagle's delay, and never raise
 * SIGPIPE. */
#ifndef TT_NET_NET_H
#define TT_NET_NET_H

#include <tutti/base.h>

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

/* Return `host` without the brackets that an IPv6 address may have, as a user writes "[::1]": `host` itself, or the
 * address in `bare`. */
enum { TT__NET_HOST_SIZE = 1025 };
const char *tt__net_bare_host(const char *host, char bare[TT__NET_HOST_SIZE]);

/* Split "HOST:PORT", "[::1]:PORT", "HOST", "[::1]" or "::1", which is an address and has no port. *port := the text
 * after the colon, NULL: there is none. False: it is none of these, or the host is longer than `host` has room for. */
bool tt__net_split_endpoint(const char *endpoint, char *host, size_t size, const char **port);

/* Resolve as getaddrinfo() does, for stream sockets with these AI_ flags, except that "localhost" is 127.0.0.1 where
 * the system does not know it, that an IPv6 address may stand in brackets, and that an IPv4-mapped one is the IPv4
 * address. Returns getaddrinfo()'s code; on zero,
 * freeaddrinfo(*list). */
int tt__net_resolve(const char *host, const char *service, int flags, struct addrinfo **list);

/* Did a call on a non-blocking socket fail only because nothing can be moved now? */
static inline bool tt__net_would_block(int errnum) {
    return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR;
}

/* Connect to host:port over IPv4 or IPv6, trying again until the deadline while nobody listens there or the name is
 * unknown. Success: *fd is the caller's. Errors: TT_ERR_TIMEOUT, TT_ERR_NET (at once where loopback is down), both
 * with host, port and the last reason; TT_ERR_SYSTEM, at once: this process may not connect. */
tt_status tt__net_connect(int *fd, const char *host, int port, int64_t deadline_ms);

/* Connect likewise; a warning in the log says where and why after `warn_after_ms` without success, and every
 * `warn_every_ms` from then on. */
tt_status tt__net_connect_warning(int *fd, const char *host, int port, int64_t deadline_ms, int64_t warn_after_ms,
                                  int64_t warn_every_ms);

/* Find out whether somebody listens there, trying again until the deadline. Errors: as tt__net_connect(); the text is
 * the reason alone ("Connection refused"), for who says where himself. */
tt_status tt__net_probe(const char *host, int port, int64_t deadline_ms);

/* Bind and listen on all addresses that `host` stands for ("localhost" is two), all on one port; on all of this
 * machine's where `host` is its own name and means loopback here. port 0: any free one. fds has room for `max`; *n
 * of them are the caller's, non-blocking; *bound is the port. Errors: TT_ERR_NET unknown host, not an address of
 * this machine, port in use. */
tt_status tt__net_listen(const char *host, int port, int *fds, size_t max, size_t *n, int *bound);

/* Turn off Nagle's delay, for a socket that was accepted. */
void tt__net_no_delay(int fd);

/* Is this 127.0.0.0/8, ::1, or the former as an IPv4-mapped address? */
bool tt__net_is_loopback(const struct sockaddr *address);

/* Is the other end of this connection on this machine? Either it is loopback, or its address is the very address
 * that it called: packets with our own address as their source don't come in from outside. */
bool tt__net_is_local(int fd);

/* Turn an IPv4-mapped IPv6 address into the IPv4 address. */
void tt__net_unmap(struct sockaddr_storage *address);

enum { TT__NET_ADDRESS_SIZE = 80, TT__NET_ENDPOINT_SIZE = 280 };

/* "127.0.0.1:29500", "[::1]:29500" */
void tt__net_address_text(const struct sockaddr *address, char text[TT__NET_ADDRESS_SIZE]);
/* Write host and port as a user does: "localhost:29500", "[::1]:29500". */
void tt__net_endpoint_text(const char *host, int port, char text[TT__NET_ENDPOINT_SIZE]);

#endif
