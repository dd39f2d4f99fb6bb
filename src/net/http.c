#include "net/http.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/fork.h"
#include "net/curl_load.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 5000, MAX_HEADERS = 64 * 1024, KEEP_BYTES = 64 * 1024, AUTHORIZATION_ROOM = 8192 };

struct tt__http {
    const tt__curl *lib;
    CURL *curl;
    /* of the request that is under way */
    const tt__http_request *request;
    tt__http_answer *answer;
    size_t headers;
    const char *excess; /* what exceeded its limit: "headers", "bytes"; NULL: nothing */
    bool stopped;
    char why[CURL_ERROR_SIZE];
};

/* ---- what libcurl calls ---- */

static size_t http_take_header(char *data, size_t one, size_t n, void *user) {
    tt__http *http = user;
    (void)data;
    http->headers += one * n;
    if (http->headers <= MAX_HEADERS)
        return one * n;
    http->excess = "headers";
    return 0;
}

static size_t http_take_body(char *data, size_t one, size_t n, void *user) {
    tt__http *http = user;
    tt__bytes *body = &http->answer->body;
    size_t size = one * n;
    long status = 0;
    http->lib->curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (http->request->take && status == 200) {
        http->stopped = !http->request->take(http->request->user, (tt__span){(const uint8_t *)data, size});
        return http->stopped ? 0 : size;
    }
    if (size > http->request->max_answer - body->size) {
        http->excess = "bytes";
        return 0;
    }
    tt__bytes_put(body, data, size);
    return body->failed ? 0 : size;
}

static curl_socket_t http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)user;
    (void)purpose;
    int fd = tt__fd(socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol));
    if (fd < 0)
        return CURL_SOCKET_BAD;
    tt__fork_fd_drop(fd);
    return fd;
}

static int http_close_socket(void *user, curl_socket_t fd) {
    (void)user;
    tt__fork_fd_forget(fd);
    return close(fd);
}

/* ---- options ---- */

#define SET(option, value) (lib->curl_easy_setopt(http->curl, option, value) == CURLE_OK)

static bool set_lasting_options(tt__http *http, const tt__http_identity *identity) {
    const tt__curl *lib = http->lib;
    /* If a name server is silent, don't wait for the thread that asks it. Some older libcurls lack this option. */
    (void)lib->curl_easy_setopt(http->curl, CURLOPT_QUICK_EXIT, 1L);
    return SET(CURLOPT_PROTOCOLS_STR, "http,https") && SET(CURLOPT_PROXY, "") && SET(CURLOPT_NOSIGNAL, 1L) &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_USERAGENT, "tutti") &&
           SET(CURLOPT_TCP_NODELAY, 1L) && SET(CURLOPT_TCP_KEEPALIVE, 1L) && SET(CURLOPT_ERRORBUFFER, http->why) &&
           SET(CURLOPT_HEADERFUNCTION, http_take_header) && SET(CURLOPT_HEADERDATA, http) &&
           SET(CURLOPT_WRITEFUNCTION, http_take_body) && SET(CURLOPT_WRITEDATA, http) &&
           SET(CURLOPT_OPENSOCKETFUNCTION, http_open_socket) && SET(CURLOPT_CLOSESOCKETFUNCTION, http_close_socket) &&
           (!identity->ca_file || SET(CURLOPT_CAINFO, identity->ca_file)) &&
           (!identity->cert_file || SET(CURLOPT_SSLCERT, identity->cert_file)) &&
           (!identity->key_file || SET(CURLOPT_SSLKEY, identity->key_file));
}

static bool set_request_options(tt__http *http, const struct curl_slist *headers) {
    const tt__curl *lib = http->lib;
    const tt__http_request *request = http->request;
    long timeout = request->timeout_ms < INT32_MAX ? (long)request->timeout_ms : INT32_MAX;
    timeout = timeout > 0 ? timeout : 1; /* 0 would mean no limit */
    bool kind = request->posts ? SET(CURLOPT_POST, 1L) && SET(CURLOPT_POSTFIELDS, request->body.data) &&
                                     SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.size)
                               : SET(CURLOPT_HTTPGET, 1L);
    return kind && SET(CURLOPT_URL, request->url) && SET(CURLOPT_HTTPHEADER, headers) &&
           SET(CURLOPT_TIMEOUT_MS, timeout) &&
           SET(CURLOPT_CONNECTTIMEOUT_MS, timeout < CONNECT_MS ? timeout : (long)CONNECT_MS);
}

/* Add a header to a list; false when memory is out. */
static bool add_header(const tt__http *http, struct curl_slist **list, const char *header) {
    struct curl_slist *longer = http->lib->curl_slist_append(*list, header);
    if (longer)
        *list = longer;
    return longer != NULL;
}

static bool make_headers(const tt__http *http, struct curl_slist **list) {
    char text[AUTHORIZATION_ROOM];
    const char *authorization = http->request->authorization;
    if (authorization) {
        snprintf(text, sizeof text, "Authorization: %s", authorization);
        if (!add_header(http, list, text))
            return false;
    }
    /* Without this header libcurl would send a large body only after the server has agreed to it. */
    return add_header(http, list, "Expect:") && add_header(http, list, "Content-Type: application/json");
}

/* ---- a request ---- */

static CURLcode perform_quietly(const tt__http *http) {
    sigset_t pipe, before, pending;
    tt__fd_hold streams;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* OpenSSL writes with write(2), which raises it */
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    tt__fd_hold_streams(&streams);
    CURLcode code = http->lib->curl_easy_perform(http->curl);
    tt__fd_release(&streams);
    while (!sigismember(&pending, SIGPIPE) && sigtimedwait(&pipe, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* Was the request sent? Then "out of memory" nearly always means a header longer than libcurl's own limit. */
static bool request_was_sent(const tt__http *http) {
    long bytes = 0;
    http->lib->curl_easy_getinfo(http->curl, CURLINFO_REQUEST_SIZE, &bytes);
    return bytes > 0;
}

static tt__http_end end_of(const tt__http *http, CURLcode code) {
    if (http->stopped)
        return TT__HTTP_STOPPED;
    if (http->excess)
        return TT__HTTP_BAD;
    if (http->answer->body.failed)
        return TT__HTTP_NO_MEMORY;
    if (code == CURLE_OUT_OF_MEMORY && request_was_sent(http))
        return TT__HTTP_BAD;
    switch (code) {
    case CURLE_OK:
        return TT__HTTP_DONE;
    case CURLE_OUT_OF_MEMORY:
        return TT__HTTP_NO_MEMORY;
    case CURLE_OPERATION_TIMEDOUT:
        return TT__HTTP_LATE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
        return TT__HTTP_LOST;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return TT__HTTP_REFUSED;
    default:
        return TT__HTTP_BAD;
    }
}

tt__http_end tt__http_send(tt__http *http, const tt__http_request *request, tt__http_answer *answer) {
    struct curl_slist *headers = NULL;
    long status = 0;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    http->request = request;
    http->answer = answer;
    http->headers = 0;
    http->excess = NULL;
    http->stopped = false;
    *http->why = '\0';
    tt__bytes_clear(&answer->body, KEEP_BYTES);
    answer->body.failed = false;
    if (make_headers(http, &headers) && set_request_options(http, headers))
        code = perform_quietly(http);
    http->lib->curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
    answer->status = (int)status;
    tt__http_end end = end_of(http, code);
    if (http->excess)
        snprintf(answer->why, sizeof answer->why, "the answer has more than %zu %s",
                 *http->excess == 'h' ? (size_t)MAX_HEADERS : request->max_answer,
                 *http->excess == 'h' ? "bytes of headers" : "bytes");
    else
        snprintf(answer->why, sizeof answer->why, "%s",
                 *http->why                    ? http->why
                 : code == CURLE_OUT_OF_MEMORY ? "a header that is too long"
                                               : http->lib->curl_easy_strerror(code));
    http->lib->curl_slist_free_all(headers);
    return end;
}

tt_status tt__http_new(tt__http **out, const char *who, const tt__http_identity *identity) {
    *out = NULL;
    const tt__curl *lib = tt__curl_get(who);
    if (!lib)
        return tt_last_status();
    tt__http *http = calloc(1, sizeof *http);
    if (!http)
        return tt__fail(TT_ERR_MEMORY, "out of memory");
    http->lib = lib;
    http->curl = lib->curl_easy_init();
    *out = http;
    if (http->curl && set_lasting_options(http, identity))
        return TT_OK;
    tt__http_free(http);
    *out = NULL;
    return tt__fail(TT_ERR_UNSUPPORTED, "%s need a libcurl that has the options of 7.85, and OpenSSL", who);
}

void tt__http_free(tt__http *http) {
    if (!http)
        return;
    if (http->curl)
        http->lib->curl_easy_cleanup(http->curl);
    free(http);
}
