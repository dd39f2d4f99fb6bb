/* Reading from etcd. What is read is never older than the call: etcd's reads are linearizable unless one asks for
 * less. */
#include "base/error.h"
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <string.h>

enum {
    BATCH = 50, /* keys read with their values at once */
    KEYS = 100, /* keys looked for at once: a transaction may have 128 operations */
    PAGE = 500, /* keys of a scan's page */
    KEY_ROOM = 16 * 1024,
    SMALL_ANSWER = 64 * 1024
};

/* An answer's bytes for so many keys: base64 of what etcd's own limit allows, and its numbers. */
static size_t answer_room(size_t keys, bool values) {
    return SMALL_ANSWER + keys * (KEY_ROOM + (values ? TT__ETCD_MAX_VALUE * 2 : 0));
}

/* One batch of tt__etcd_look(). */
static void look_at_batch(tt__etcd_turn *turn, const char *const *keys, size_t n, bool values, tt__span *answer) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{\"success\":[");
    for (size_t i = 0; i < n; i++) {
        tt__etcd_put_text(&body, i ? ",{\"request_range\":{" : "{\"request_range\":{");
        tt__etcd_put_key(&body, turn->store, keys[i]);
        tt__etcd_put_text(&body, values ? "}}" : ",\"keys_only\":true}}");
    }
    tt__etcd_put_text(&body, "]}");
    tt__etcd_post(turn, "/v3/kv/txn", &body, answer_room(n, values), answer);
    tt__bytes_free(&body);
}

void tt__etcd_look(tt__etcd_turn *turn, const char *const *keys, size_t n, bool values, int64_t *revision,
                   void (*found)(tt__etcd_turn *turn, void *user, size_t i, const tt__etcd_kv *kv), void *user) {
    *revision = 0;
    const size_t most = values ? BATCH : KEYS;
    for (size_t i = 0; i < n && !turn->status; i += most) {
        size_t batch = n - i < most ? n - i : most;
        tt__span answer = {0}, responses, response, range, kvs;
        look_at_batch(turn, keys + i, batch, values, &answer);
        if (turn->status)
            return;
        *revision = *revision ? *revision : tt__etcd_revision(answer);
        if (!*revision || !tt__json_member(answer, "responses", &responses)) {
            tt__etcd_bad_answer(turn, "a revision and responses");
            return;
        }
        for (size_t k = 0; k < batch && !turn->status; k++) {
            tt__etcd_kv kv = {0};
            if (!tt__json_item(&responses, &response) || !tt__json_member(response, "response_range", &range))
                tt__etcd_bad_answer(turn, "a response for each key");
            else if (tt__json_member(range, "kvs", &kvs) && !tt__etcd_next_kv(&kvs, &kv))
                tt__etcd_bad_answer(turn, "a key and its value");
            else
                found(turn, user, i + k, &kv);
        }
    }
}

void tt__etcd_count(tt__etcd_turn *turn, int64_t *count) {
    tt__bytes body = {0};
    tt__span answer, responses, response, range, number;
    tt__etcd_put_text(&body, "{\"success\":[{\"request_range\":{");
    tt__etcd_put_key(&body, turn->store, "");
    tt__etcd_put_text(&body, ",\"count_only\":true}},{\"request_range\":{");
    tt__etcd_put_key(&body, turn->store, "\1"); /* behind the markers */
    tt__etcd_put_end(&body, turn->store, "");
    tt__etcd_put_text(&body, ",\"count_only\":true}}]}");
    *count = 0;
    if (tt__etcd_post(turn, "/v3/kv/txn", &body, SMALL_ANSWER, &answer)) {
        if (!tt__json_member(answer, "responses", &responses))
            tt__etcd_bad_answer(turn, "responses");
        while (!turn->status && tt__json_item(&responses, &response)) {
            int64_t some = 0;
            if (!tt__json_member(response, "response_range", &range))
                tt__etcd_bad_answer(turn, "a range");
            else if (tt__json_member(range, "count", &number) && !tt__json_i64(number, &some))
                tt__etcd_bad_answer(turn, "a number of keys");
            *count += some;
        }
    }
    tt__bytes_free(&body);
}

/* Ask for a page of a scan: what follows `last` (base64), or the first one. */
static bool ask_page(tt__etcd_turn *turn, const char *prefix, const tt__bytes *last, int64_t revision,
                     tt__span *answer) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{");
    if (last->size) {
        tt__etcd_put_text(&body, "\"key\":\"");
        tt__etcd_put_base64(&body, last->data, last->size);
        tt__etcd_put_text(&body, "\"");
    } else {
        tt__etcd_put_key(&body, turn->store, prefix);
    }
    tt__etcd_put_end(&body, turn->store, prefix);
    if (last->size) {
        tt__etcd_put_text(&body, ",\"revision\":\"");
        tt__etcd_put_i64(&body, revision);
        tt__etcd_put_text(&body, "\"");
    }
    tt__etcd_put_text(&body, ",\"keys_only\":true,\"limit\":\"");
    tt__etcd_put_i64(&body, PAGE);
    tt__etcd_put_text(&body, "\"}");
    bool good = tt__etcd_post(turn, "/v3/kv/range", &body, answer_room(PAGE, false), answer);
    tt__bytes_free(&body);
    return good;
}

void tt__etcd_scan(tt__etcd_turn *turn, const char *prefix, int64_t *revision,
                   void (*found)(tt__etcd_turn *turn, void *user, const tt__etcd_kv *kv), void *user) {
    tt__bytes last = {0};
    *revision = 0;
    for (bool more = true; more && !turn->status;) {
        tt__span answer, kvs = {0}, flag;
        if (!ask_page(turn, prefix, &last, *revision, &answer))
            break;
        *revision = *revision ? *revision : tt__etcd_revision(answer);
        tt__etcd_kv kv, end = {0};
        if (tt__json_member(answer, "kvs", &kvs))
            while (!turn->status && tt__etcd_next_kv(&kvs, &kv)) {
                found(turn, user, &kv);
                end = kv;
            }
        more = tt__json_member(answer, "more", &flag) && tt__json_is_true(flag);
        tt__bytes_clear(&last, SIZE_MAX);
        if (!*revision || (more && (!end.there || !tt__etcd_take_base64(&last, end.key))))
            tt__etcd_bad_answer(turn, "a revision, and keys on a page that has a next one");
        tt__bytes_put(&last, "", 1); /* the key that follows */
        if (last.failed)
            tt__etcd_no_memory(turn);
    }
    tt__bytes_free(&last);
}
