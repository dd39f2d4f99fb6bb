/* Renewal: a server becomes a fresh store at the same address. The keys that its clients have left go, and the clients'
 * connections end.
 *
 * The launchers of a job share one server with its workers. The launchers' keys and connections must outlive a restart
 * of the workers: keys that begin with TT__STORE_LASTING stay, and so does the connection of a client that has set one.
 *
 * A key can also end with its client: the first key that a client sets and that begins with TT__STORE_LIVING is deleted
 * when the client's connection ends (other systems call such keys ephemeral).
 *
 * The server stays, because its port may be one that the user has named, and a second server for the launchers would
 * need a second port that all nodes can reach. All other connections end, including those that wait to be accepted, so
 * nothing that an old rank sends late reaches a new one. */
#ifndef TT_STORE_RENEWAL_H
#define TT_STORE_RENEWAL_H

#include <tutti/store.h>

#define TT__STORE_LASTING "/tutti/nodes/" /* as sent: TCP stores put a slash before the user's key */
#define TT__STORE_LIVING "/tutti/nodes/alive/"

/* Renew the store. Connections that nobody has accepted yet are closed, too. When it returns, everything that other
 * clients have sent is gone or will be ignored. Blocks for as long as the server takes to close its connections. No
 * other thread may use the server meanwhile. */
void tt__store_server_renew(tt_store_server *server);

#endif
