/* What etcd's gateway sends and takes: JSON that is read where it lies, and base64, compared with OpenSSL's; addresses
 * of servers, and their refusals. */
#include "store/etcd/etcd_text.h"
#include "store/etcd/json_scan.h"

#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tt__span span(const char *text) { return (tt__span){(const uint8_t *)text, strlen(text)}; }

static void is(tt__span found, const char *expected) {
    if (found.size != strlen(expected) || memcmp(found.data, expected, found.size))
        fail_msg("\"%.*s\" is not \"%s\"", (int)found.size, (const char *)found.data, expected);
}

static void whole_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t size;
    } cases[] = {
        {"{}", 2},          {" [1, 2] tail", 7},
        {"\"a\\\"b\" ", 6}, {"{\"a\":{\"b\":[true,null,-1.5e3]}}\n{", 30},
        {"7", 1},           {"", 0},
        {"   ", 0},         {"{", 0},
        {"{\"a\"}", 0},     {"{\"a\":}", 0},
        {"{\"a\":1,}", 0},  {"{a:1}", 0},
        {"[1,]", 0},        {"[1 2]", 0},
        {"[1}", 0},         {"\"never ends", 0},
        {"\"a\\", 0},       {"\"a\nb\"", 0},
        {"<html>", 0},      {",", 0},
    };
    char deep[256] = "";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tt__json_size(span(cases[i].text)) != cases[i].size)
            fail_msg("%s: %zu", cases[i].text, tt__json_size(span(cases[i].text)));
    for (int depth = 1; depth <= 60; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        deep[2 * depth] = '\0';
        assert_int_equal(tt__json_size(span(deep)), depth <= 33 ? 2 * depth : 0);
    }
    static const char all[] = "{\"a\": [1, \"]\\\"}\"], \"b\": {\"c\": null}}"; /* every part of it is none */
    for (size_t n = 0; n < sizeof all - 1; n++)
        assert_int_equal(tt__json_size((tt__span){(const uint8_t *)all, n}), 0);
    assert_int_equal(tt__json_size(span(all)), sizeof all - 1);
}

static void members_and_items(void **state) {
    (void)state;
    const tt__span object =
        span(" { \"ab\" : 1 , \"a\":{\"a\":2}, \"list\":[ {\"x\":1} , \"two\",3 ], \"a\":9, \"\":4}");
    tt__span value, rest, item;
    assert_true(tt__json_member(object, "a", &value));
    is(value, "{\"a\":2}");
    assert_true(tt__json_member(value, "a", &item));
    is(item, "2");
    assert_true(tt__json_member(object, "", &value));
    is(value, "4");
    assert_false(tt__json_member(object, "b", &value));
    assert_false(tt__json_member(object, "x", &value));
    assert_false(tt__json_member(span("[]"), "a", &value));
    assert_false(tt__json_member(span("{}"), "a", &value));
    assert_true(tt__json_member(object, "list", &rest));
    static const char *const items[] = {"{\"x\":1}", "\"two\"", "3"};
    for (int i = 0; i < 3; i++) {
        assert_true(tt__json_item(&rest, &item));
        is(item, items[i]);
    }
    assert_false(tt__json_item(&rest, &item));
    rest = span("[]");
    assert_false(tt__json_item(&rest, &item));
    rest = span("{\"a\":1}");
    assert_false(tt__json_item(&rest, &item));
}

static void texts_and_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t number;
    } numbers[] = {
        {"12", true, 12},
        {"\"-12\"", true, -12},
        {"\"9223372036854775807\"", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"\"\"", false, 0},
        {"1.5", false, 0},
        {"true", false, 0},
        {"\"1x\"", false, 0},
        {"{}", false, 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t number = 0;
        assert_int_equal(tt__json_i64(span(numbers[i].text), &number), numbers[i].good);
        assert_int_equal(number, numbers[i].number);
    }
    char text[16];
    assert_true(tt__json_text(span("\"a\\\"\\\\\\u003c\\u00fc\\n\\/z\""), text, sizeof text));
    assert_string_equal(text, "a\"\\<? /z");
    assert_true(tt__json_text(span("\"0123456789abcdefgh\""), text, sizeof text));
    assert_string_equal(text, "0123456789abcde");
    assert_false(tt__json_text(span("12"), text, sizeof text));
    assert_true(tt__json_is_true(span("true")) && !tt__json_is_true(span("\"true\"")));
}

static void base64_is_openssls(void **state) {
    (void)state;
    unsigned char data[300], expected[512];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + i / 7);
    for (size_t n = 0; n <= sizeof data; n++) {
        tt__bytes text = {0}, back = {0};
        int size = EVP_EncodeBlock(expected, data, (int)n);
        tt__etcd_put_base64(&text, data, n);
        assert_int_equal(text.size, size);
        assert_true(!size || !memcmp(text.data, expected, (size_t)size));
        assert_true(tt__etcd_take_base64(&back, (tt__span){text.data, text.size}));
        assert_int_equal(back.size, n);
        assert_true(!n || !memcmp(back.data, data, n));
        tt__bytes_free(&text);
        tt__bytes_free(&back);
    }
    static const char *const wrong[] = {"a",    "ab",   "abc",   "a===",  "====",         "ab=c",    "ab c",
                                        "ab-_", "=abc", "\nabc", "abc\n", "abcd\n\n\n\n", "ab==abcd"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tt__bytes back = {0};
        if (tt__etcd_take_base64(&back, span(wrong[i])))
            fail_msg("\"%s\" was taken", wrong[i]);
        tt__bytes_free(&back);
    }
}

static void strings_are_escaped(void **state) {
    (void)state;
    tt__bytes out = {0};
    tt__etcd_put_json_string(&out, "a\"b\\c\n\x01\xc3\xbc");
    is((tt__span){out.data, out.size}, "\"a\\u0022b\\u005cc\\u000a\\u0001\xc3\xbc\"");
    tt__bytes_free(&out);
}

static void addresses(void **state) {
    (void)state;
    char *urls[4];
    int n;
    assert_int_equal(tt__etcd_parse_servers("a,https://b:1,http://[::1]:2/,[fe80::1]", urls, 4, &n), TT_OK);
    assert_int_equal(n, 4);
    assert_string_equal(urls[0], "http://a:2379");
    assert_string_equal(urls[1], "https://b:1");
    assert_string_equal(urls[2], "http://[::1]:2");
    assert_string_equal(urls[3], "http://[fe80::1]:2379");
    for (int i = 0; i < n; i++)
        free(urls[i]);
    assert_int_equal(tt__etcd_parse_servers("a,b,c,d,e", urls, 4, &n), TT_ERR_INVALID);
    for (int i = 0; i < n; i++)
        free(urls[i]);
}

static void refusals(void **state) {
    (void)state;
    tt__etcd_refusal r;
    tt__etcd_read_refusal(&r, span("{\"error\":\"e\",\"message\":\"etcdserver: no leader\",\"code\":14}"));
    assert_true(r.is_etcd && r.code == TT__ETCD_UNAVAILABLE && tt__etcd_refusal_passes(&r));
    assert_string_equal(r.message, "etcdserver: no leader");
    tt__etcd_read_refusal(&r, span("{\"code\":5,\"message\":\"lost\",\"details\":[]}")); /* as newer ones write it */
    assert_true(r.is_etcd && r.code == TT__ETCD_NOT_FOUND && !tt__etcd_refusal_passes(&r));
    tt__etcd_read_refusal(&r, span("{\"error\":{\"grpc_code\":8,\"message\":\"etcdserver: too many requests\"}}"));
    assert_true(r.is_etcd && tt__etcd_refusal_passes(&r));
    tt__etcd_read_refusal(&r, span("{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}"));
    assert_true(r.is_etcd && !tt__etcd_refusal_passes(&r));
    tt__etcd_read_refusal(&r, span("<p>\x1b[2J no\n"));
    assert_false(r.is_etcd);
    assert_string_equal(r.message, "\"<p>?[2J no\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_values),
        cmocka_unit_test(members_and_items),
        cmocka_unit_test(texts_and_numbers),
        cmocka_unit_test(base64_is_openssls),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(addresses),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
