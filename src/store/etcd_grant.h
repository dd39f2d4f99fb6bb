/* Leases as etcd's requests have them: keys under a lease vanish when nobody keeps it alive. */
#ifndef TT_STORE_ETCD_GRANT_H
#define TT_STORE_ETCD_GRANT_H

#include "store/etcd_client.h"

/* Make a lease of `seconds`; *granted (may be NULL): what etcd made of it. Errors as of tt__etcd_call(). */
tt_status tt__etcd_grant(tt__etcd_client *client, int64_t seconds, int64_t deadline_ms, int64_t *id, int64_t *granted);

/* Begin its time anew. TT_ERR_STATE: it has ended. */
tt_status tt__etcd_keep(tt__etcd_client *client, int64_t id, int64_t deadline_ms);

/* End it, and with it its keys. One that has ended already is all right. */
tt_status tt__etcd_revoke(tt__etcd_client *client, int64_t id, int64_t deadline_ms);

#endif
