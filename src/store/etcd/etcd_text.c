#include "store/etcd/etcd_text.h"

#include "base/error.h"
#include "base/text/plain_text.h"
#include "store/etcd/json_scan.h"

#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tt__etcd_put_text(tt__bytes *out, const char *text) { tt__bytes_put(out, text, strlen(text)); }

void tt__etcd_put_i64(tt__bytes *out, int64_t number) {
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, number);
    tt__bytes_put(out, text, (size_t)size);
}

void tt__etcd_put_base64(tt__bytes *out, const void *data, size_t size) {
    if (size > INT_MAX / 2 || !tt__bytes_reserve(out, size / 3 * 4 + 5)) { /* OpenSSL ends it with '\0' */
        out->failed = true;
        return;
    }
    out->size += (size_t)EVP_EncodeBlock(out->data + out->size, data, (int)size);
}

void tt__etcd_put_json_string(tt__bytes *out, const char *text) {
    tt__bytes_put(out, "\"", 1);
    for (; *text; text++) {
        char escape[8];
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\') {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            tt__etcd_put_text(out, escape);
        } else {
            tt__bytes_put(out, text, 1);
        }
    }
    tt__bytes_put(out, "\"", 1);
}

/* OpenSSL skips white space at both ends, which makes its result shorter, and reads '=' as zeros anywhere. */
bool tt__etcd_take_base64(tt__bytes *out, tt__span text) {
    size_t pads = 0;
    while (pads < 2 && pads < text.size && text.data[text.size - 1 - pads] == '=')
        pads++;
    if (!text.size)
        return true;
    if (text.size % 4 || text.size > INT_MAX || memchr(text.data, '=', text.size - pads) ||
        !tt__bytes_reserve(out, text.size / 4 * 3))
        return false;
    if (EVP_DecodeBlock(out->data + out->size, text.data, (int)text.size) != (int)(text.size / 4 * 3))
        return false;
    out->size += text.size / 4 * 3 - pads;
    return true;
}

enum { HOST_ROOM = 256 };

#define FORM "host:port or https://host:port, several separated by commas"

/* ---- addresses */

static tt_status bad_server(const char *endpoints, const char *what) {
    return tt__fail(TT_ERR_INVALID, "expected etcd's address as " FORM ", got \"%s\": %s",
                    tt__make_printable(endpoints).text, what);
}

/* Does an address, without its scheme, name a port? A colon in brackets is the host's. */
static bool has_port(const char *host, size_t size) {
    const char *colon = memrchr(host, ':', size), *bracket = memrchr(host, ']', size);
    return colon && (!bracket || colon > bracket);
}

static tt_status make_url(const char *endpoints, const char *text, size_t size, char **url) {
    const char *scheme = "http://";
    if (size >= 8 && !strncmp(text, "https://", 8))
        scheme = "https://";
    size_t skip = !strncmp(text, scheme, strlen(scheme)) && size >= strlen(scheme) ? strlen(scheme) : 0;
    const char *host = text + skip;
    size_t length = size - skip;
    if (length && host[length - 1] == '/')
        length--;
    for (size_t i = 0; i < length; i++)
        if (host[i] <= ' ' || host[i] >= 0x7f || strchr("/?#@\\\"<>^`{|}", host[i]))
            return bad_server(endpoints, "a host's name has no such character");
    const char *colon = has_port(host, length) ? memrchr(host, ':', length) : NULL;
    if (!length || colon == host)
        return bad_server(endpoints, "a host is missing");
    if (length >= HOST_ROOM)
        return bad_server(endpoints, "it is too long");
    long port = colon ? strtol(colon + 1, NULL, 10) : 1;
    if (port < 1 || port > 65535 || (colon && strspn(colon + 1, "0123456789") != (size_t)(host + length - colon - 1)))
        return bad_server(endpoints, "a port is a number from 1 to 65535");
    if (asprintf(url, "%s%.*s%s", scheme, (int)length, host, colon ? "" : ":2379") >= 0)
        return TT_OK;
    *url = NULL;
    return tt__fail(TT_ERR_MEMORY, "out of memory");
}

tt_status tt__etcd_parse_servers(const char *endpoints, char **urls, int max, int *n) {
    *n = 0;
    for (const char *at = endpoints;;) {
        size_t size = strcspn(at, ",");
        if (*n == max)
            return bad_server(endpoints, "these are too many");
        TT__TRY(make_url(endpoints, at, size, &urls[*n]));
        ++*n;
        at += size;
        if (!*at)
            return TT_OK;
        at++;
    }
}

/* ---- refusals */

void tt__etcd_read_refusal(tt__etcd_refusal *refusal, tt__span body) {
    tt__span error, code, message;
    int64_t number = 0;
    *refusal = (tt__etcd_refusal){0};
    if (body.size && tt__json_size(body)) {
        if (tt__json_member(body, "error", &error) && error.size && error.data[0] == '{')
            body = error; /* in a stream the error is a member */
        refusal->is_etcd = (tt__json_member(body, "code", &code) || tt__json_member(body, "grpc_code", &code)) &&
                           tt__json_member(body, "message", &message) && tt__json_i64(code, &number) &&
                           tt__json_text(message, refusal->message, sizeof refusal->message);
        refusal->code = number >= 0 && number <= 16 ? (tt__etcd_code)number : TT__ETCD_NO_CODE;
    }
    if (refusal->is_etcd)
        return;
    char begin[81] = "";
    size_t size = body.size < sizeof begin - 1 ? body.size : sizeof begin - 1;
    if (size)
        memcpy(begin, body.data, size);
    size = strlen(begin);
    while (size && (begin[size - 1] == '\n' || begin[size - 1] == '\r'))
        begin[--size] = '\0';
    snprintf(refusal->message, sizeof refusal->message, "\"%s\"", tt__make_printable(begin).text);
}

bool tt__etcd_refusal_passes(const tt__etcd_refusal *r) {
    return r->code == TT__ETCD_UNAVAILABLE || r->code == TT__ETCD_DEADLINE ||
           (r->code == TT__ETCD_EXHAUSTED && strstr(r->message, "too many requests"));
}

tt_status tt__etcd_fail_refusal(const tt__etcd_refusal *r, const char *url, const char *path, int http_status) {
    if (!r->is_etcd)
        return tt__fail(http_status == 401 || http_status == 403 ? TT_ERR_AUTH : TT_ERR_PROTOCOL,
                        "%s: expected etcd to answer POST %s, got HTTP %d, %s", url, path, http_status, r->message);
    const char *hint = "";
    tt_status status = TT_ERR_NET;
    if (strstr(r->message, "user name is empty")) {
        status = TT_ERR_AUTH;
        hint =
            ". It wants to know who asks: give .user and .password (or TT_ETCD_USER and TT_ETCD_PASSWORD), or a token";
    } else if (r->code == TT__ETCD_FORBIDDEN) {
        status = TT_ERR_AUTH;
        hint = ". This user may not use these keys: grant a role for the prefix, or choose another prefix";
    } else if (r->code == TT__ETCD_UNAUTHENTICATED || strstr(r->message, "authentication failed")) {
        status = TT_ERR_AUTH;
    } else if (strstr(r->message, "larger than max") || strstr(r->message, "too large")) {
        status = TT_ERR_INVALID;
        hint = ". Etcd's requests are limited to 1.5 MiB (its flag --max-request-bytes)";
    } else if (strstr(r->message, "space exceeded")) {
        hint = ". Its disk quota is used up: compact, defragment and disarm the alarm, or raise --quota-backend-bytes";
    }
    return tt__fail(status, "%s%s: HTTP %d, etcd says: %s%s", url, path, http_status, r->message, hint);
}

tt_status tt__etcd_fail_version(const char *url, const char *version) {
    int major = 0, minor = 0;
    if (sscanf(version, "%d.%d", &major, &minor) == 2 && (major > 3 || (major == 3 && minor >= 4)))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: etcd %s, but its JSON gateway is off, by which Tutti speaks the v3 API: start it without "
                        "--enable-grpc-gateway=false",
                        url, version);
    return tt__fail(
        TT_ERR_UNSUPPORTED,
        "%s: expected etcd 3.4 or later, which has the v3 API, got %s. (torchrun's own etcd back end speaks "
        "the v2 API, which servers since 3.6 no longer have)",
        url, version);
}
