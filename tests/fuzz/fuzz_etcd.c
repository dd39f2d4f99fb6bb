/* Answers of etcd's gateway: JSON is read where it lies. Whatever is found must lie inside of the text, and what is
 * written in base64 must be read back as it was. */
#include "store/etcd/etcd_store.h"
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good) {
    if (!good)
        abort();
}

static void must_hold(tt__span whole, tt__span part) {
    must(!part.size || (part.data >= whole.data && part.data + part.size <= whole.data + whole.size));
}

static void read_kvs(tt__span kvs) {
    static char prefix[] = "tutti/";
    const tt__etcd_store store = {.prefix = prefix, .prefix_size = sizeof prefix - 1};
    tt__etcd_kv kv;
    while (tt__etcd_next_kv(&kvs, &kv)) {
        tt__bytes key = {0}, value = {0};
        if (tt__etcd_key_of(&store, &kv, &key))
            must(strlen((const char *)key.data) == key.size - 1);
        (void)tt__etcd_take_base64(&value, kv.value);
        tt__bytes_free(&key);
        tt__bytes_free(&value);
    }
}

static void read_value(tt__span whole, tt__span value, int depth) {
    static const char *const names[] = {"header", "revision", "kvs",    "responses", "response_range", "key",
                                        "value",  "result",   "events", "kv",        "error",          "code",
                                        "ID",     "TTL",      "count",  "message",   "version"};
    tt__span part, rest = value;
    int64_t number;
    char text[40];
    must_hold(whole, value);
    (void)tt__json_i64(value, &number);
    (void)tt__json_is_true(value);
    if (tt__json_text(value, text, sizeof text))
        must(strlen(text) < sizeof text && tt__json_string(value, &part));
    for (size_t i = 0; depth < 4 && i < sizeof names / sizeof *names; i++)
        if (tt__json_member(value, names[i], &part))
            read_value(whole, part, depth + 1);
    for (int n = 0; depth < 4 && n < 8 && tt__json_item(&rest, &part); n++)
        read_value(whole, part, depth + 1);
    read_kvs(value);
    (void)tt__etcd_revision(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt__span text = {data, size};
    tt__etcd_refusal refusal;
    tt__bytes base64 = {0}, back = {0};
    size_t whole = tt__json_size(text);
    must(whole <= size);
    if (whole)
        read_value(text, (tt__span){data, whole}, 0);
    tt__etcd_read_refusal(&refusal, text);
    must(strlen(refusal.message) < sizeof refusal.message);
    tt__etcd_put_base64(&base64, data, size);
    must(tt__etcd_take_base64(&back, (tt__span){base64.data, base64.size}) && back.size == size);
    must(!size || !memcmp(back.data, data, size));
    tt__bytes_free(&base64);
    tt__bytes_free(&back);
    return 0;
}
