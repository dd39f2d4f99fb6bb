/* This host's addresses. */
#ifndef TT_NET_INTERFACES_H
#define TT_NET_INTERFACES_H

#include <tutti/base.h>

#include <net/if.h>
#include <sys/socket.h>

enum { TT__INTERFACES_MAX = 32 };

/* One address of an interface that is up. */
typedef struct tt__interface {
    char name[IF_NAMESIZE];
    struct sockaddr_storage address; /* port 0 */
    int prefix;                      /* bits of its subnet */
    bool loopback;
} tt__interface;

/* List all addresses, IPv4 and IPv6, except those valid on one link only (fe80::). Returns how many were written, at
 * most `max`; 0 with errno where the system can't say, 0 with errno = 0 where there is none. */
size_t tt__interfaces(tt__interface *list, size_t max);

/* Does the name pass a list like TT_SOCKET_IFNAME's: "eth,=ib0,^docker"? Parts are separated by commas: a prefix of
 * the interface's name, or after "=" its whole name; after "^" (also "^=") such interfaces are left out. If all
 * parts begin with "^", all other interfaces pass. NULL and "": all pass. */
bool tt__interface_passes(const char *list, const char *name);

/* Is `address` in the subnet of this interface? Is it the interface's own? */
bool tt__interface_reaches(const tt__interface *interface, const struct sockaddr *address);
bool tt__interface_has(const tt__interface *interface, const struct sockaddr *address);

#endif
