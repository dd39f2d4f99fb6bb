/* HTTP requests with deadlines and bounds, by libcurl. A hostile server costs no more time than was given, and no more
 * memory than the answer may have. Redirects are not followed, proxies of the environment not used: these requests go
 * to servers of the cluster. */
#ifndef TT_NET_HTTP_H
#define TT_NET_HTTP_H

#include "base/bytes.h"

#include <tutti/base.h>

enum { TT__HTTP_WHY_SIZE = 320 };

/* What a client proves, and to whom: files of PEM, or NULL. Borrowed. */
typedef struct tt__http_identity {
    const char *ca_file; /* who has signed the server's certificate; NULL: one of the system's authorities */
    const char *cert_file, *key_file;
} tt__http_identity;

/* One connection, which is used again. One request at a time. */
typedef struct tt__http tt__http;

/* Errors: TT_ERR_UNSUPPORTED there is no libcurl (`who` begins the text), TT_ERR_MEMORY. */
tt_status tt__http_new(tt__http **out, const char *who, const tt__http_identity *identity);
void tt__http_free(tt__http *http);

typedef struct tt__http_request {
    const char *url;
    const char *authorization; /* the header's value, or NULL */
    bool posts;                /* POST the body, which is JSON; else GET */
    tt__span body;
    int64_t timeout_ms; /* for all of it; less than 1 is 1 */
    size_t max_answer;  /* bytes of the answer's body */
    /* Where the answer's body goes as it comes, if it has status 200; false ends the request. NULL: it is collected. */
    bool (*take)(void *user, tt__span bytes);
    void *user;
} tt__http_request;

typedef enum tt__http_end {
    TT__HTTP_DONE,    /* the answer is whole */
    TT__HTTP_STOPPED, /* take() has ended it */
    TT__HTTP_LOST,    /* no connection, or it broke: another server, or another time, may do */
    TT__HTTP_LATE,    /* the time is up */
    TT__HTTP_BAD,     /* no HTTP, or more than is allowed */
    TT__HTTP_REFUSED, /* the server's certificate, or a file of ours, is not good */
    TT__HTTP_NO_MEMORY
} tt__http_end;

typedef struct tt__http_answer {
    int status; /* HTTP's; 0: there was none */
    tt__bytes body;
    char why[TT__HTTP_WHY_SIZE]; /* unless it is done or stopped: in libcurl's words */
} tt__http_answer;

/* Send a request, and wait for the answer, whose body is the caller's to free, whatever comes of it; what the body held
 * before is dropped. */
tt__http_end tt__http_send(tt__http *http, const tt__http_request *request, tt__http_answer *answer);

#endif
