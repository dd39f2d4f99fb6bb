/* HTTP requests with limits, by libcurl. A hostile server costs no more time than the timeout, and no more memory than
 * the answer may have. These requests go to servers of the cluster, so redirects are not followed, and the
 * environment's proxies are not used. */
#ifndef TT_NET_HTTP_H
#define TT_NET_HTTP_H

#include "base/bytes.h"

#include <tutti/base.h>

enum { TT__HTTP_WHY_SIZE = 320 };

/* Certificates: PEM files, or NULL. Borrowed. */
typedef struct tt__http_identity {
    const char *ca_file;              /* the CA of the server's certificate; NULL: the system's authorities */
    const char *cert_file, *key_file; /* the client's; NULL: it has none */
} tt__http_identity;

/* A connection, which is used again for each request. One request at a time. */
typedef struct tt__http tt__http;

/* Errors: TT_ERR_UNSUPPORTED there is no libcurl (`who` begins the text), TT_ERR_MEMORY. */
tt_status tt__http_new(tt__http **out, const char *who, const tt__http_identity *identity);
void tt__http_free(tt__http *http);

typedef struct tt__http_request {
    const char *url;
    const char *authorization; /* the header's value, or NULL */
    bool posts;                /* POST the body, which is JSON; else GET */
    tt__span body;
    int64_t timeout_ms; /* for the whole request; less than 1 is 1 */
    size_t max_answer;  /* bytes of the answer's body */
    /* Takes the body of an answer with status 200 piece by piece; false ends the request. NULL: the body is
     * collected. */
    bool (*take)(void *user, tt__span bytes);
    void *user;
} tt__http_request;

typedef enum tt__http_end {
    TT__HTTP_DONE,    /* the answer is whole */
    TT__HTTP_STOPPED, /* take() has ended it */
    TT__HTTP_LOST,    /* no connection, or it broke: try another server, or later */
    TT__HTTP_LATE,    /* the time is up */
    TT__HTTP_BAD,     /* no HTTP, or an answer above the limits */
    TT__HTTP_REFUSED, /* the server's certificate, or a file of ours, is invalid */
    TT__HTTP_NO_MEMORY
} tt__http_end;

typedef struct tt__http_answer {
    int status; /* HTTP's; 0: no answer */
    tt__bytes body;
    char why[TT__HTTP_WHY_SIZE]; /* of a failure, in libcurl's words */
} tt__http_answer;

/* Send a request, and wait for the answer. The caller frees its body in any case; what the body held before is
 * dropped. */
tt__http_end tt__http_send(tt__http *http, const tt__http_request *request, tt__http_answer *answer);

#endif
