/* What outlives whom. A fresh store at the same address: what a server's clients have left in it goes, and so do the
 * clients.
 *
 * The launchers of a job use one server with its workers. What they tell each other, and their connections, must
 * outlive the workers that are started again: keys that begin with TT__STORE_LASTING stay, and so does the connection
 * of a client that has set one.
 *
 * The other way round, the first key that begins with TT__STORE_LIVING and that a client sets is deleted when the
 * client's connection ends (what other systems call ephemeral).
 *
 * The server stays, because its port may be one that the user has named, and a second server for the launchers would
 * need a second port that all nodes can reach. All other connections end, including those that wait to be accepted, so
 * nothing that an old rank sends late reaches a new one. */
#ifndef TT_STORE_RENEWAL_H
#define TT_STORE_RENEWAL_H

#include <tutti/store.h>

#define TT__STORE_LASTING "/tutti/nodes/" /* as it is sent: TCP stores put a slash before the user's key */
#define TT__STORE_LIVING "/tutti/nodes/alive/"

/* Renew the store. Connections that nobody has accepted yet are closed, too. When it returns, all that any of the other
 * clients has sent is gone or will be ignored. Blocks for as long as the server takes to close its connections. The
 * server is used by one thread meanwhile. */
void tt__store_server_renew(tt_store_server *server);

#endif
