/* Which user is at the other end of a TCP connection within this machine? Only the kernel knows. */
#ifndef TT_NET_PEER_USER_H
#define TT_NET_PEER_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* Return a descriptor by which tt__net_peer_user() asks, the caller's to close; -1: it has to do without. */
int tt__net_peer_user_begin(void);

/* Ask who owns the socket at the other end of `fd`, a connection between two sockets of this network namespace. False:
 * nobody has it open any more, the other end is not on this machine, or the kernel does not tell. One thread at a
 * time. */
bool tt__net_peer_user(int asking, int fd, uid_t *user);

/* The same by /proc/net/tcp and tcp6 alone, which tt__net_peer_user() reads where the kernel has no sock_diag. */
bool tt__net_peer_user_by_proc(int fd, uid_t *user);

#endif
