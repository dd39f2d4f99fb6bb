#include "store/etcd/etcd_client.h"

#include "base/error.h"
#include "base/files/planted.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTEMPT_MS = 3000, /* how long one server has before the next is asked */
    PAUSE_FIRST_MS = 10,
    PAUSE_LAST_MS = 500,
    URL_ROOM = 320,
    TOKEN_ROOM = 4096,
    MAX_LINE = 16 << 20,
    MAX_SMALL_ANSWER = 64 * 1024
};

#define WHO "etcd stores"

/* ---- beginning and end */

static tt_status set_text(char **text, const char *given, const char *variable) {
    const char *value = given ? given : secure_getenv(variable);
    if (!value || !*value)
        return TT_OK;
    *text = strdup(value);
    return *text ? TT_OK : tt__fail(TT_ERR_MEMORY, "out of memory");
}

static const char *file_of_option(const char *given, const char *variable) {
    const char *value = given ? given : secure_getenv(variable);
    return value && *value ? value : NULL;
}

static tt_status check_pairs(const tt__etcd_client *client, const tt__http_identity *identity) {
    if (client->user && client->token)
        return tt__fail(TT_ERR_INVALID, "expected .user and .password, or .token, got both (or TT_ETCD_USER, "
                                        "TT_ETCD_TOKEN)");
    if (!client->user != !client->password)
        return tt__fail(TT_ERR_INVALID, "expected .user and .password together (or TT_ETCD_USER, TT_ETCD_PASSWORD), "
                                        "got one of them");
    const char *files[] = {identity->ca_file, identity->cert_file, identity->key_file};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) /* libcurl would wait for a FIFO */
        if (files[i])
            TT__TRY(tt__check_regular(files[i]));
    if (!identity->cert_file != !identity->key_file)
        return tt__fail(TT_ERR_INVALID, "expected .cert_file and .key_file together (or TT_ETCD_CERT_FILE, "
                                        "TT_ETCD_KEY_FILE), got one of them");
    for (const char *c = client->token; c && *c; c++)
        if (*c <= ' ' || *c >= 0x7f)
            return tt__fail(TT_ERR_INVALID, "the token has a character that none has: white space or a line's end?");
    return TT_OK;
}

tt_status tt__etcd_client_begin(tt__etcd_client *client, const char *endpoints, const tt__etcd_credentials *given) {
    *client = (tt__etcd_client){0};
    tt__http_identity identity = {file_of_option(given->ca_file, "TT_ETCD_CA_FILE"),
                                  file_of_option(given->cert_file, "TT_ETCD_CERT_FILE"),
                                  file_of_option(given->key_file, "TT_ETCD_KEY_FILE")};
    TT__TRY(tt__etcd_parse_servers(endpoints, client->urls, TT__ETCD_MAX_SERVERS, &client->servers));
    TT__TRY(set_text(&client->user, given->user, "TT_ETCD_USER"));
    TT__TRY(set_text(&client->password, given->password, "TT_ETCD_PASSWORD"));
    TT__TRY(set_text(&client->token, given->token, "TT_ETCD_TOKEN"));
    TT__TRY(check_pairs(client, &identity));
    TT__TRY(tt__http_new(&client->calls, WHO, &identity));
    return tt__http_new(&client->watches, WHO, &identity);
}

static void forget_secret(char **text) {
    if (*text)
        OPENSSL_cleanse(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void tt__etcd_client_end(tt__etcd_client *client) {
    for (int i = 0; i < client->servers; i++)
        free(client->urls[i]);
    tt__http_free(client->calls);
    tt__http_free(client->watches);
    tt__bytes_free(&client->answer.body);
    free(client->user);
    forget_secret(&client->password);
    forget_secret(&client->token);
}

/* ---- one attempt */

/* What follows an attempt. */
typedef enum verdict { ANSWERED, TRY_NEXT, LOG_IN, FAILED } verdict;

/* One call, on one server after another. */
typedef struct attempts {
    tt__etcd_client *client;
    const char *path;
    tt__span body;
    size_t max_answer;
    int64_t begun_ms, deadline_ms;
    int64_t attempt_ms; /* grows: else a request that takes a slow server longer would never succeed */
    int64_t pause_ms;
    int tried;                    /* since the last pause */
    char last[TT__HTTP_WHY_SIZE]; /* what was wrong with the last attempt */
} attempts;

static tt__http_end send_to_current(attempts *a, bool posts, const char *path, int64_t timeout_ms, size_t max_answer) {
    char url[URL_ROOM];
    snprintf(url, sizeof url, "%s%s", a->client->urls[a->client->current], path);
    return tt__http_send(a->client->calls,
                         &(tt__http_request){.url = url,
                                             .authorization = posts ? a->client->token : NULL,
                                             .posts = posts,
                                             .body = a->body,
                                             .timeout_ms = timeout_ms,
                                             .max_answer = max_answer},
                         &a->client->answer);
}

/* The server has nothing at this path: ask for its version. */
static verdict find_out_version(attempts *a) {
    tt__etcd_client *client = a->client;
    const char *url = client->urls[client->current];
    tt__span version;
    char text[32] = "";
    int left = tt__left_ms(a->deadline_ms);
    tt__http_end end =
        send_to_current(a, false, "/version", left < ATTEMPT_MS ? left + 1 : ATTEMPT_MS, MAX_SMALL_ANSWER);
    tt__span body = {client->answer.body.data, client->answer.body.size};
    if (end != TT__HTTP_DONE || !tt__json_size(body) || !tt__json_member(body, "etcdserver", &version) ||
        !tt__json_text(version, text, sizeof text))
        tt__fail(TT_ERR_PROTOCOL,
                 "%s: expected etcd, but it answers POST %s with 404 (not found), and tells no version", url, a->path);
    else
        tt__etcd_fail_version(url, text);
    return FAILED;
}

/* Deal with an answer of etcd's other than 200. */
static verdict judge_refusal(attempts *a) {
    tt__etcd_client *client = a->client;
    tt__etcd_refusal r;
    tt__etcd_read_refusal(&r, (tt__span){client->answer.body.data, client->answer.body.size});
    int status = client->answer.status;
    client->code = r.code;
    if (r.is_etcd ? tt__etcd_refusal_passes(&r) : status == 502 || status == 503 || status == 504) {
        snprintf(a->last, sizeof a->last, "HTTP %d, %.200s", status, r.message);
        return TRY_NEXT;
    }
    if (!r.is_etcd && status == 404)
        return find_out_version(a);
    if ((r.code == TT__ETCD_UNAUTHENTICATED || strstr(r.message, "invalid auth token")) && client->user)
        return LOG_IN;
    tt__etcd_fail_refusal(&r, client->urls[client->current], a->path, status);
    return FAILED;
}

static verdict judge_answer(attempts *a) {
    const tt__http_answer *answer = &a->client->answer;
    tt__span body = {answer->body.data, answer->body.size}, unused;
    if (answer->status != 200)
        return judge_refusal(a);
    size_t size = tt__json_size(body);
    if (size && body.data[0] == '{' &&
        (tt__json_member(body, "header", &unused) || tt__json_member(body, "result", &unused)))
        return ANSWERED;
    tt__fail(TT_ERR_PROTOCOL, "%s: expected an answer of etcd's to POST %s, got \"%s\"",
             a->client->urls[a->client->current], a->path,
             tt__make_printable(size        ? "other JSON"
                                : body.size ? "no JSON"
                                            : "")
                 .text);
    return FAILED;
}

static verdict attempt_once(attempts *a) {
    tt__etcd_client *client = a->client;
    const char *url = client->urls[client->current];
    int64_t left = tt__left_ms(a->deadline_ms);
    tt__http_end end = send_to_current(a, true, a->path, left < a->attempt_ms ? left : a->attempt_ms, a->max_answer);
    snprintf(a->last, sizeof a->last, "%s", client->answer.why);
    switch (end) {
    case TT__HTTP_DONE:
        return judge_answer(a);
    case TT__HTTP_LOST:
    case TT__HTTP_LATE:
        return TRY_NEXT;
    case TT__HTTP_REFUSED:
        tt__fail(
            TT_ERR_AUTH,
            "%s: %s. Expected the server's certificate to be signed by .ca_file (or TT_ETCD_CA_FILE), and readable "
            "files of PEM in all three options",
            url, client->answer.why);
        return FAILED;
    case TT__HTTP_NO_MEMORY:
        tt__fail(TT_ERR_MEMORY, "out of memory");
        return FAILED;
    default:
        tt__fail(TT_ERR_PROTOCOL, "%s: expected etcd, but to POST %s: %s", url, a->path, client->answer.why);
        return FAILED;
    }
}

void tt__etcd_turn_away(tt__etcd_client *client) { client->current = (client->current + 1) % client->servers; }

/* Turn to the next server; after the last one wait a little. */
static void turn_to_next(attempts *a) {
    tt__etcd_client *client = a->client;
    tt__etcd_turn_away(client);
    if (++a->tried < client->servers)
        return;
    int64_t left = tt__left_ms(a->deadline_ms), pause_ms = a->pause_ms < left ? a->pause_ms : left;
    tt__sleep_ms(pause_ms);
    a->pause_ms = 2 * a->pause_ms < PAUSE_LAST_MS ? 2 * a->pause_ms : PAUSE_LAST_MS;
    a->attempt_ms *= 2;
    a->tried = 0;
}

static tt_status fail_unanswered(const attempts *a) {
    char where[URL_ROOM] = "";
    if (a->client->servers > 1)
        snprintf(where, sizeof where, " and %d more", a->client->servers - 1);
    return tt__fail(TT_ERR_TIMEOUT, "no etcd answered within %" PRId64 " ms at %s%s%s%s", tt__now_ms() - a->begun_ms,
                    a->client->urls[0], where, *a->last ? "; what came last: " : "", a->last);
}

static attempts attempts_begin(tt__etcd_client *client, const char *path, tt__span body, int64_t deadline_ms) {
    return (attempts){.client = client,
                      .path = path,
                      .body = body,
                      .begun_ms = tt__now_ms(),
                      .deadline_ms = deadline_ms,
                      .attempt_ms = ATTEMPT_MS,
                      .pause_ms = PAUSE_FIRST_MS};
}

/* ---- logging in */

static bool take_token(tt__etcd_client *client, tt__span answer) {
    tt__span token;
    char text[TOKEN_ROOM];
    if (!tt__json_member(answer, "token", &token) || !tt__json_text(token, text, sizeof text) || !*text)
        return false;
    forget_secret(&client->token);
    client->token = strdup(text);
    OPENSSL_cleanse(text, sizeof text);
    return client->token != NULL;
}

/* Exchange user and password for a token. A server that wants neither is accepted, as etcdctl does. */
static tt_status log_in(tt__etcd_client *client, int64_t deadline_ms) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{\"name\":");
    tt__etcd_put_json_string(&body, client->user);
    tt__etcd_put_text(&body, ",\"password\":");
    tt__etcd_put_json_string(&body, client->password);
    tt__etcd_put_text(&body, "}");
    attempts a = attempts_begin(client, "/v3/auth/authenticate", (tt__span){body.data, body.size}, deadline_ms);
    a.max_answer = MAX_SMALL_ANSWER;
    verdict v = body.failed ? FAILED : TRY_NEXT;
    forget_secret(&client->token);
    while (v == TRY_NEXT && tt__left_ms(deadline_ms))
        if ((v = attempt_once(&a)) == TRY_NEXT)
            turn_to_next(&a);
    tt_status status = TT_OK;
    if (body.failed)
        status = tt__fail(TT_ERR_MEMORY, "out of memory");
    else if (v == TRY_NEXT)
        status = fail_unanswered(&a);
    else if (v != ANSWERED)
        status = client->code == TT__ETCD_PRECONDITION ? TT_OK : tt_last_status();
    else if (!take_token(client, (tt__span){client->answer.body.data, client->answer.body.size}))
        status = tt__fail(TT_ERR_PROTOCOL, "%s: expected a token from /v3/auth/authenticate, got none",
                          client->urls[client->current]);
    if (body.data)
        OPENSSL_cleanse(body.data, body.size);
    tt__bytes_free(&body);
    return status;
}

/* ---- calls */

tt_status tt__etcd_call(tt__etcd_client *client, const char *path, tt__span body, size_t max_answer,
                        int64_t deadline_ms, tt__span *answer) {
    attempts a = attempts_begin(client, path, body, deadline_ms);
    a.max_answer = max_answer;
    client->code = TT__ETCD_NO_CODE;
    bool logged_in = false;
    if (client->user && !client->token) {
        TT__TRY(log_in(client, deadline_ms));
        logged_in = true;
    }
    while (tt__left_ms(deadline_ms)) {
        client->code = TT__ETCD_NO_CODE;
        switch (attempt_once(&a)) {
        case ANSWERED:
            *answer = (tt__span){client->answer.body.data, client->answer.body.size};
            return TT_OK;
        case TRY_NEXT:
            turn_to_next(&a);
            break;
        case LOG_IN:
            if (logged_in)
                return tt__fail(TT_ERR_AUTH, "%s: etcd doesn't accept the token that it has just given",
                                client->urls[client->current]);
            TT__TRY(log_in(client, deadline_ms));
            logged_in = true;
            break;
        case FAILED:
            return tt_last_status();
        }
    }
    return fail_unanswered(&a);
}

/* ---- watches */

typedef struct line_reader {
    tt__bytes text; /* what has come of a line */
    bool (*line)(void *, tt__span);
    void *user;
    bool ended, broken;
} line_reader;

static bool take_lines(void *user, tt__span bytes) {
    line_reader *reader = user;
    while (bytes.size) {
        const uint8_t *newline = memchr(bytes.data, '\n', bytes.size);
        size_t n = newline ? (size_t)(newline - bytes.data) + 1 : bytes.size;
        if (reader->text.size + n <= MAX_LINE)
            tt__bytes_put(&reader->text, bytes.data, n);
        else
            reader->broken = true;
        if (reader->broken || reader->text.failed)
            return false;
        bytes = (tt__span){bytes.data + n, bytes.size - n};
        if (!newline)
            return true;
        tt__span line = {reader->text.data, reader->text.size};
        reader->broken = line.size > 1 && !tt__json_size(line);
        reader->ended = line.size > 1 && !reader->broken && !reader->line(reader->user, line);
        tt__bytes_clear(&reader->text, MAX_SMALL_ANSWER);
        if (reader->broken || reader->ended)
            return false;
    }
    return true;
}

tt__etcd_watch_end tt__etcd_watch_lines(tt__etcd_client *client, tt__span body, int64_t timeout_ms,
                                        bool (*line)(void *user, tt__span object), void *user) {
    char url[URL_ROOM];
    line_reader reader = {.line = line, .user = user};
    if (timeout_ms <= 0)
        return TT__ETCD_WATCH_LATE;
    snprintf(url, sizeof url, "%s/v3/watch", client->urls[client->current]);
    tt__http_end end = tt__http_send(client->watches,
                                     &(tt__http_request){.url = url,
                                                         .authorization = client->token,
                                                         .posts = true,
                                                         .body = body,
                                                         .timeout_ms = timeout_ms,
                                                         .max_answer = MAX_SMALL_ANSWER,
                                                         .take = take_lines,
                                                         .user = &reader},
                                     &client->answer);
    tt__bytes_free(&reader.text);
    if (reader.ended)
        return TT__ETCD_WATCH_STOPPED;
    if (end == TT__HTTP_LATE)
        return TT__ETCD_WATCH_LATE;
    tt__etcd_turn_away(client);
    return TT__ETCD_WATCH_LOST;
}
