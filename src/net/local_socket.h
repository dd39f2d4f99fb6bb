/* Unix sockets in the abstract name space (no file is left behind), over which processes of one host hand each other
 * descriptors. */
#ifndef TT_NET_LOCAL_SOCKET_H
#define TT_NET_LOCAL_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* Make the address of the abstract name `name`, which is cut off if it is too long; returns the address's length. */
socklen_t tt__abstract_address(struct sockaddr_un *address, const char *name);

/* Find the user at the other end of a connected Unix socket; the side that connected finds the one that listens. False:
 * getsockopt(SO_PEERCRED) failed, errno says why. */
bool tt__local_peer_user(int socket, uid_t *user);

/* Is the other end this process's user? False also if the kernel doesn't tell. */
bool tt__local_peer_is_us(int socket);

/* May the Unix socket of this inode, in this network namespace, have this abstract name, and have been made by `user`?
 * False: the kernel denies it, or there is no such socket. A line of /proc/net/unix proves nothing: another socket's
 * name may hold a line break, followed by what looks like a line. */
bool tt__local_socket_may_be(unsigned long inode, const char *name, uid_t user);

/* Send one packet of `size` bytes, with the descriptor `attached`, which stays the caller's, or none if that is -1.
 * After a failure errno says why. */
bool tt__send_packet(int socket, const void *packet, size_t size, int attached);

/* Receive one packet of at most `size` bytes. Returns its length; 0: the other side has closed; -1: errno says why.
 * *attached: its first descriptor, for the caller to close, or -1; further ones are closed. `flags`: recvmsg()'s. */
ssize_t tt__receive_packet(int socket, void *packet, size_t size, int flags, int *attached);

#endif
