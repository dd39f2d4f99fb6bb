/* A client of etcd's v3 API by its JSON gateway: requests go to one of several servers, and to the next when that is
 * gone. What is sent may arrive twice, when an answer is lost: see etcd_write.c for what follows. */
#ifndef TT_STORE_ETCD_CLIENT_H
#define TT_STORE_ETCD_CLIENT_H

#include "net/http.h"
#include "store/etcd/etcd_text.h"

enum { TT__ETCD_MAX_SERVERS = 16 };

/* What the caller may choose; NULL = the environment's (TT_ETCD_USER ...), "" = none. */
typedef struct tt__etcd_credentials {
    const char *user, *password, *token, *ca_file, *cert_file, *key_file;
} tt__etcd_credentials;

typedef struct tt__etcd_client {
    char *urls[TT__ETCD_MAX_SERVERS]; /* "http://host:port" */
    int servers, current;
    tt__http *calls, *watches; /* a watch ends by closing its connection, which calls keep */
    char *user, *password, *token;
    tt__etcd_code code; /* of the last call, where etcd gave one */
    tt__http_answer answer;
} tt__etcd_client;

/* Take a list "host:port,https://other:port" and credentials. Connects to nobody yet. Errors: TT_ERR_INVALID,
 * TT_ERR_UNSUPPORTED without libcurl, TT_ERR_MEMORY; tt__etcd_client_end() follows in any case. */
tt_status tt__etcd_client_begin(tt__etcd_client *client, const char *endpoints, const tt__etcd_credentials *given);
void tt__etcd_client_end(tt__etcd_client *client);

/* POST `body` to `path` ("/v3/kv/txn") of a server that works, and get the answer: a whole JSON object, at most
 * `max_answer` bytes, the client's until its next call. Errors: TT_ERR_TIMEOUT no server answered (the text names them,
 * and says what the last said); TT_ERR_AUTH; TT_ERR_PROTOCOL it is no etcd; TT_ERR_UNSUPPORTED it lacks the v3 API;
 * TT_ERR_NET etcd refuses (client->code), TT_ERR_MEMORY. */
tt_status tt__etcd_call(tt__etcd_client *client, const char *path, tt__span body, size_t max_answer,
                        int64_t deadline_ms, tt__span *answer);

/* Turn to the next server, where one may be stopped: it takes connections, and says nothing. */
void tt__etcd_turn_away(tt__etcd_client *client);

/* One watch: POST `body` to /v3/watch and hand over the lines of the answer, each a whole JSON object, until `line`
 * returns false, or `timeout_ms` has passed, or the connection breaks: then the client turns to the next server. */
typedef enum tt__etcd_watch_end {
    TT__ETCD_WATCH_STOPPED, /* by `line` */
    TT__ETCD_WATCH_LATE,
    TT__ETCD_WATCH_LOST
} tt__etcd_watch_end;

tt__etcd_watch_end tt__etcd_watch_lines(tt__etcd_client *client, tt__span body, int64_t timeout_ms,
                                        bool (*line)(void *user, tt__span object), void *user);

#endif
