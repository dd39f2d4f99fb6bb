/* Which user is at the other end of a TCP connection within this machine? Only the kernel knows. */
#ifndef TT_NET_PEER_USER_H
#define TT_NET_PEER_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* Return a descriptor by which tt__net_peer_user() asks the kernel (sock_diag), for the caller to close; -1: there is
 * none. */
int tt__net_peer_user_begin(void);

/* Ask who owns the socket at the other end of `fd`, a connection between two sockets of this network namespace. asking:
 * as above; with -1, or if the kernel has no sock_diag, /proc/net/tcp and tcp6 are read. False: nobody has that socket
 * open any more, it is not on this machine, or the kernel does not tell. One thread at a time. */
bool tt__net_peer_user(int asking, int fd, uid_t *user);

#endif
