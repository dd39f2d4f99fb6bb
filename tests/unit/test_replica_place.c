/* The list of a store's replicas: what is one, and which lists mean the same. */
#include "store/replica_place.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_what_is_a_list(void **state) {
    (void)state;
    tt__replica_place place;
    assert_int_equal(tt__replica_place_read(&place, "--replicas", "a:1,10.0.0.2:2,[fe80::1%eth0]:65535", 0), TT_OK);
    assert_int_equal(place.n, 3);
    assert_string_equal(place.at[0].host, "a");
    assert_string_equal(place.at[1].host, "10.0.0.2");
    assert_string_equal(place.at[2].host, "fe80::1%eth0");
    assert_int_equal(place.at[2].port, 65535);
    assert_int_equal(tt__replica_place_read(&place, "--replicas", "a,b:2,::1,[::2],[::3]:4", 9), TT_OK);
    assert_int_equal(place.n, 5);
    assert_int_equal(place.at[0].port, 9);
    assert_string_equal(place.at[2].host, "::1");
    assert_int_equal(place.at[3].port, 9);
    assert_int_equal(place.at[4].port, 4);
}

static void test_what_is_none(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "expected HOST:PORT"},
        {",", "expected HOST:PORT"},
        {"a:1,b:2", "expected three or five"},
        {"a:1,b:2,c:3,d:4", "expected three or five"},
        {"a:1,b:2,c:3,d:4,e:5,f:6", "expected three or five"},
        {"a:1,b:2,c:3,", "separated by commas without blanks, got \"\""},
        {"a:1,b:2,c:3,d:4,e:5,", "expected three or five"},
        {",a:1,b:2,c:3", "separated by commas without blanks, got \"\""},
        {"a:1,,b:2,c:3", "separated by commas without blanks, got \"\""},
        {"a:1, b:2, c:3", "separated by commas without blanks, got \" b:2\""},
        {"a:1,b:2,c:3 ", "got \"3 \""},
        {"a :1,b:2,c:3", "separated by commas without blanks, got \"a :1\""},
        {"a:1,b:2,c\t:3", "separated by commas without blanks"},
        {"[x]y:5,b:2,c:3", "expected HOST:PORT, separated by commas without blanks, got \"[x]y:5\""},
        {"x]:5,b:2,c:3", "got \"x]:5\""},
        {"[x:5,b:2,c:3", "got \"[x:5\""},
        {"[]:5,b:2,c:3", "got \"[]:5\""},
        {"[[x]]:5,b:2,c:3", "got \"[[x]]:5\""},
        {"tcp://a:1,b:2,c:3", "got \"tcp://a:1\""},
        {"a:1,b:2,c", "got \"c\""},
        {"a:1,b:2,:3", "got \":3\""},
        {"a:1,b:2,c:", "but it is empty"},
        {"a:1,b:2,c:0", "got \"0\""},
        {"a:1,b:2,[c]:1", NULL},
        {"a:1,b:2,a:1", "expected each replica once, got \"a:1\" twice"},
        {"a:1,b:2,[a]:1", "expected each replica once"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt__replica_place place;
        tt_status status = tt__replica_place_read(&place, "--replicas", bad[i][0], 0);
        if (!bad[i][1]) {
            assert_int_equal(status, TT_OK);
            continue;
        }
        assert_int_equal(status, TT_ERR_INVALID);
        if (!strstr(tt_last_error(), bad[i][1]))
            fail_msg("\"%s\": expected \"%s\", got \"%s\"", bad[i][0], bad[i][1], tt_last_error());
    }
    char host[400];
    tt__replica_place place;
    memset(host, 'a', sizeof host);
    snprintf(host + 256, sizeof host - 256, ":1,b:2,c:3");
    assert_int_equal(tt__replica_place_read(&place, "--replicas", host, 0), TT_ERR_INVALID);
}

static void test_lists_that_agree(void **state) {
    (void)state;
    static const struct {
        const char *other;
        bool agrees;
    } lists[] = {
        {"a:1,b:2,[::1]:3", true},
        {"a:1,b:2,::1:3", false},
        {"b:2,a:1,[::1]:3", false},
        {"a.net:1,b:2,[::1]:3", true},
        {"a.net:1,[::1]:3,b:2", false},
        {"[::1]:3,a:1,b:2", false},
        {"a:1,b:2", false},
        {"a:1,b:2,[::1]:3,d:4,e:5", false},
        {"", false},
        {"x:7,y:8,z:9", true} /* other names: who they are shows when they meet */,
    };
    tt__replica_place place;
    char text[TT__REPLICA_LIST_SIZE];
    assert_int_equal(tt__replica_place_read(&place, "--replicas", lists[0].other, 0), TT_OK);
    tt__replica_place_text(&place, text);
    assert_string_equal(text, lists[0].other);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *other = lists[i].other;
        bool agrees = tt__replica_place_agrees(&place, (tt__span){(const uint8_t *)other, strlen(other)});
        if (agrees != lists[i].agrees)
            fail_msg("%s: %s", other, agrees ? "agrees" : "does not agree");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_a_list),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_lists_that_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
