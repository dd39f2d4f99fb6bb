/* A client of etcd's v3 API, by its JSON gateway. Requests go to one of several servers, and to the next one if that is
 * gone. If an answer is lost, a request may be carried out twice: etcd_write.c deals with that. */
#ifndef TT_STORE_ETCD_CLIENT_H
#define TT_STORE_ETCD_CLIENT_H

#include "net/http.h"
#include "store/etcd/etcd_text.h"

enum { TT__ETCD_MAX_SERVERS = 16 };

/* The program's choice; NULL = the environment's (TT_ETCD_USER ...), "" = none. */
typedef struct tt__etcd_credentials {
    const char *user, *password, *token, *ca_file, *cert_file, *key_file;
} tt__etcd_credentials;

typedef struct tt__etcd_client {
    char *urls[TT__ETCD_MAX_SERVERS]; /* "http://host:port" */
    int servers, current;
    tt__http *calls, *watches; /* two connections, because a watch ends by closing its own */
    char *user, *password, *token;
    tt__etcd_code code; /* of the last call, if etcd gave one */
    tt__http_answer answer;
} tt__etcd_client;

/* Take a list "host:port,https://other:port" and credentials, without connecting. Errors: TT_ERR_INVALID,
 * TT_ERR_UNSUPPORTED there is no libcurl, TT_ERR_MEMORY. Call tt__etcd_client_end() in any case. */
tt_status tt__etcd_client_begin(tt__etcd_client *client, const char *endpoints, const tt__etcd_credentials *given);
void tt__etcd_client_end(tt__etcd_client *client);

/* POST `body` to `path` ("/v3/kv/txn") of a server that works, and get the answer: a whole JSON object, at most
 * `max_answer` bytes, valid until the client's next call. Errors: TT_ERR_TIMEOUT no server answered (the text names
 * them, and quotes the last one); TT_ERR_AUTH; TT_ERR_PROTOCOL the server is no etcd; TT_ERR_UNSUPPORTED it lacks the
 * v3 API; TT_ERR_NET etcd refuses (client->code); TT_ERR_MEMORY. */
tt_status tt__etcd_call(tt__etcd_client *client, const char *path, tt__span body, size_t max_answer,
                        int64_t deadline_ms, tt__span *answer);

/* Turn to the next server: the present one takes connections but does not answer, so it may be stopped. */
void tt__etcd_turn_away(tt__etcd_client *client);

/* Watch: POST `body` to /v3/watch and hand each line of the answer, a whole JSON object, to `line`. Ends when that
 * returns false, when `timeout_ms` has passed, or when the connection breaks: then the client turns to the next
 * server. */
typedef enum tt__etcd_watch_end {
    TT__ETCD_WATCH_STOPPED, /* by `line` */
    TT__ETCD_WATCH_LATE,
    TT__ETCD_WATCH_LOST
} tt__etcd_watch_end;

tt__etcd_watch_end tt__etcd_watch_lines(tt__etcd_client *client, tt__span body, int64_t timeout_ms,
                                        bool (*line)(void *user, tt__span object), void *user);

#endif
