/* libcurl, loaded when it is first needed: it loads some forty libraries, and no start should wait for them. */
#ifndef TT_NET_CURL_LOAD_H
#define TT_NET_CURL_LOAD_H

#include <tutti/base.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* The functions that are used. Types and constants come from libcurl's header. */
#define TT__CURL_FUNCTIONS(X) \
    X(curl_easy_cleanup)      \
    X(curl_easy_getinfo)      \
    X(curl_easy_init)         \
    X(curl_easy_perform)      \
    X(curl_easy_setopt)       \
    X(curl_easy_strerror)     \
    X(curl_global_init)       \
    X(curl_slist_append)      \
    X(curl_slist_free_all)

typedef struct tt__curl {
#define TT__CURL_FIELD(name) __typeof__(name) *name;
    TT__CURL_FUNCTIONS(TT__CURL_FIELD)
#undef TT__CURL_FIELD
} tt__curl;

/* Return libcurl's functions; NULL and TT_ERR_UNSUPPORTED: there is no libcurl. `who` begins the error's text:
 * "downloads". Thread-safe. */
const tt__curl *tt__curl_get(const char *who);

#endif
