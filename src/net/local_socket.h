/* Unix sockets in the abstract name space (no file is left behind), over which processes of one host hand each other
 * descriptors. */
#ifndef TT_NET_LOCAL_SOCKET_H
#define TT_NET_LOCAL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* Make the address of the abstract name `name`, cut off where an address ends; returns the address's length. */
socklen_t tt__abstract_address(struct sockaddr_un *address, const char *name);

/* Which user is at the other end of a connected Unix socket? For a caller: who listens. False: getsockopt(SO_PEERCRED)
 * failed, and errno has the reason. */
bool tt__local_peer_user(int socket, uid_t *user);

/* Is that this process's user? False also where the kernel doesn't say. */
bool tt__local_peer_is_us(int socket);

/* May the Unix socket of this inode, in this network namespace, have this abstract name, and have been made by `user`?
 * False: the kernel says that it isn't so, or that there is none. A line of /proc/net/unix says nothing yet: another's
 * name may hold a line break, and what looks like a line behind it. */
bool tt__local_socket_may_be(unsigned long inode, const char *name, uid_t user);

/* Send one packet of `size` bytes, with a descriptor unless `attached` is -1, which stays the caller's. errno has the
 * reason of a failure. */
bool tt__send_packet(int socket, const void *packet, size_t size, int attached);

/* Receive one packet of at most `size` bytes: its length, 0 at the other side's end, -1 and errno. *attached: its
 * first descriptor, the caller's, or -1; further ones are closed. `flags`: of recvmsg(). */
ssize_t tt__receive_packet(int socket, void *packet, size_t size, int flags, int *attached);

#endif
