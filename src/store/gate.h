/* Who may come in. A connection's first byte says what it is about to speak; the gate decides what may follow, keeps those that have yet to prove
 * themselves in the order in which they came, so that the slow are found without a search, and logs whom it refuses, but not more lines than people
 * want to read. */
#ifndef TT_STORE_GATE_H
#define TT_STORE_GATE_H

#include "net/refusals.h"
#include "net/stream.h"
#include "store/table.h"

#include <tutti/store.h>

typedef struct tt__gate {
    tt_store_auth auth;
    tt__secret secret;
    tt__tls *tls;       /* NULL: connections are not encrypted */
    int64_t timeout_ms; /* to prove oneself */
    size_t max_pending; /* more newcomers than this make the oldest go */
    tt__link pending;   /* of tt__newcomer.link, the oldest first */
    size_t pending_count;
    bool warned;
    tt__refusals refusals;
} tt__gate;

/* A connection's part. Zeroed = not at the gate. */
typedef struct tt__newcomer {
    tt__link link;
    bool waiting; /* among the gate's pending */
    bool local;   /* comes from this machine */
    int64_t deadline_ms;
} tt__newcomer;

/* auth as given; secret: as in tt_store_server_new_args. Errors: as tt_store_server_new(). */
tt_status tt__gate_init(tt__gate *gate, tt_store_auth auth, const char *secret, int64_t timeout_ms);
void tt__gate_free(tt__gate *gate);

/* May who is at the other end speak PyTorch's dialect, or say nothing for as long as it likes? */
bool tt__gate_trusts(const tt__gate *gate, const tt__newcomer *newcomer);

/* What its first byte allows. */
typedef enum tt__gate_answer { TT__GATE_REFUSE, TT__GATE_SERVE, TT__GATE_GREET, TT__GATE_ENCRYPT } tt__gate_answer;
tt__gate_answer tt__gate_ask(tt__gate *gate, const tt__newcomer *newcomer, uint8_t first_byte, const char *peer,
                             const char **why);

/* Its handshake is over: is it let in? An unencrypted one without any secret has proved nothing. */
bool tt__gate_accepts(const tt__gate *gate, const tt__newcomer *newcomer);

/* The newcomer has until the deadline from now on; or is through (also: gone). */
void tt__gate_watch(tt__gate *gate, tt__newcomer *newcomer);
void tt__gate_release(tt__gate *gate, tt__newcomer *newcomer);

/* One that must go: its time is up, or there are too many; NULL if none. */
tt__newcomer *tt__gate_overdue(tt__gate *gate);
/* The one that has waited longest; NULL if none. */
tt__newcomer *tt__gate_oldest(const tt__gate *gate);
/* When the next one's time is up (or lines are to be told of); -1: never. */
int64_t tt__gate_next_ms(const tt__gate *gate);

#endif
