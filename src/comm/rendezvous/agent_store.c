/* How a process ended, which only its parent knows. The launcher writes it into the store it serves. */
#include "comm/rendezvous/round.h"
#include "comm/world.h"
#include "net/job/job_socket.h"
#include "store/signed.h"

#include <tutti/store.h>

#include <stdio.h>

/* Together well under the second within which errors are to name a dead rank. A launcher writes as soon as it learns of
 * the end. */
enum { CONNECT_MS = 300, WAIT_MS = 300 };

const char *tt__agent_store_end_of(const tt__agent_store *agent_store, int r, char *text, size_t size) {
    tt_store *store = NULL;
    tt_store_value value;
    tt__secret secret;
    char key[64];
    text[0] = '\0';
    if (!agent_store->port || tt_tcp_store(&store, agent_store->host, agent_store->port, .timeout_ms = CONNECT_MS))
        return text;
    tt_store_set_timeout_ms(store, WAIT_MS);
    tt__ended_key(key, r, tt__round_number());
    if (!tt__secret_load(&secret) &&
        !tt__signed_get(store, &secret, key, tt__store_life(store, false), "this rank", "the launcher", 0, &value)) {
        snprintf(text, size, "%s", (const char *)value.data);
        tt_store_value_free(&value);
    }
    tt__secret_wipe(&secret);
    tt_store_free(store);
    return text;
}
