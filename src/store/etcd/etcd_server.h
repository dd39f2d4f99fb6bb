/* Etcd's servers: their addresses, and what they say when they refuse. */
#ifndef TT_STORE_ETCD_SERVER_H
#define TT_STORE_ETCD_SERVER_H

#include "base/bytes.h"

#include <tutti/base.h>

/* gRPC's codes, as far as they decide anything here. */
typedef enum tt__etcd_code {
    TT__ETCD_NO_CODE = 0,
    TT__ETCD_INVALID = 3,
    TT__ETCD_DEADLINE = 4,
    TT__ETCD_NOT_FOUND = 5,
    TT__ETCD_FORBIDDEN = 7,
    TT__ETCD_EXHAUSTED = 8,
    TT__ETCD_PRECONDITION = 9,
    TT__ETCD_UNAVAILABLE = 14,
    TT__ETCD_UNAUTHENTICATED = 16
} tt__etcd_code;

/* Read "host:port,https://other" into urls[0..max-1], each the caller's to free: a scheme is put before what has none,
 * etcd's port behind. *n counts those that were made, also after a failure. Errors: TT_ERR_INVALID, TT_ERR_MEMORY. */
tt_status tt__etcd_parse_servers(const char *endpoints, char **urls, int max, int *n);

typedef struct tt__etcd_refusal {
    bool is_etcd; /* the answer has the form of etcd's errors */
    tt__etcd_code code;
    char message[160]; /* etcd's, or how the answer begins */
} tt__etcd_refusal;

/* Read the body of an answer that is not 200, or an error among a watch's lines. */
void tt__etcd_read_refusal(tt__etcd_refusal *refusal, tt__span body);

/* May another server, or the same a little later, do what this one refused? */
bool tt__etcd_refusal_passes(const tt__etcd_refusal *refusal);

/* Record what etcd's refusal means, and return that status. */
tt_status tt__etcd_fail_refusal(const tt__etcd_refusal *refusal, const char *url, const char *path, int http_status);

/* Record that a server of this version has no v3 API where it is looked for: TT_ERR_UNSUPPORTED. */
tt_status tt__etcd_fail_version(const char *url, const char *version);

#endif
