/* Texts for and from etcd's gateway: JSON in which keys and values are base64, addresses of servers, and refusals. */
#ifndef TT_STORE_ETCD_TEXT_H
#define TT_STORE_ETCD_TEXT_H

#include "base/bytes.h"

#include <tutti/base.h>

/* Append text as it is; a whole number; bytes in base64; a string in quotes, with escapes. */
void tt__etcd_put_text(tt__bytes *out, const char *text);
void tt__etcd_put_i64(tt__bytes *out, int64_t number);
void tt__etcd_put_base64(tt__bytes *out, const void *data, size_t size);
void tt__etcd_put_json_string(tt__bytes *out, const char *text);

/* Append the bytes that the base64 encodes; padding is required. False: it is no base64, or memory is out
 * (out->failed). */
bool tt__etcd_take_base64(tt__bytes *out, tt__span base64);

/* ---- servers ---- */

/* Read "host:port,https://other" into urls[0..max-1], each for the caller to free; a missing scheme is added, and a
 * missing port becomes etcd's. *n counts the URLs that were made, also after a failure. Errors: TT_ERR_INVALID,
 * TT_ERR_MEMORY. */
tt_status tt__etcd_parse_servers(const char *endpoints, char **urls, int max, int *n);

/* The gRPC codes that are told apart here. */
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

typedef struct tt__etcd_refusal {
    bool is_etcd; /* the answer has the form of etcd's errors */
    tt__etcd_code code;
    char message[160]; /* etcd's, or else the beginning of the answer */
} tt__etcd_refusal;

/* Read the body of an answer that is not 200, or an error among a watch's lines. */
void tt__etcd_read_refusal(tt__etcd_refusal *refusal, tt__span body);

/* May another server, or the same one a little later, accept what this one refused? */
bool tt__etcd_refusal_passes(const tt__etcd_refusal *refusal);

/* Record the error that etcd's refusal means, and return its status. */
tt_status tt__etcd_fail_refusal(const tt__etcd_refusal *refusal, const char *url, const char *path, int http_status);

/* Record that a server of this version has no v3 API at the path that we use: TT_ERR_UNSUPPORTED. */
tt_status tt__etcd_fail_version(const char *url, const char *version);

#endif
