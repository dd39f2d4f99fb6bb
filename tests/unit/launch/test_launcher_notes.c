/* The launcher's notes of how ranks ended, read while ranks join: a store that fails says so, whichever call it was,
 * and only what is not the launcher's counts for nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/rendezvous/launcher_notes.h"

#include <tutti/store.h>

typedef struct failing {
    tt_status status; /* of get */
    const char *value;
} failing;

static tt_status no_set(void *user, const char *key, const void *value, size_t size) {
    (void)user, (void)key, (void)value, (void)size;
    return TT_OK;
}
static tt_status failing_get(void *user, const char *key, int64_t timeout_ms, tt_store_value *value) {
    const failing *f = user;
    (void)key, (void)timeout_ms;
    if (f->status)
        return tt_fail(f->status, "the wait was interrupted");
    *value = (tt_store_value){strdup(f->value), strlen(f->value)};
    return TT_OK;
}
static tt_status no_add(void *user, const char *key, int64_t delta, int64_t *result) {
    (void)user, (void)key, (void)delta;
    *result = 0;
    return TT_OK;
}
static tt_status no_wait(void *user, const char *const *keys, int64_t n, int64_t timeout_ms) {
    (void)user, (void)keys, (void)n, (void)timeout_ms;
    return TT_OK;
}
static tt_status always_there(void *user, const char *const *keys, int64_t n, bool *all) {
    (void)user, (void)keys, (void)n;
    *all = true;
    return TT_OK;
}

static tt_status read_note(failing f, const tt__secret *secret, char text[96]) {
    static const tt_store_class class = {
        .set = no_set, .get = failing_get, .add = no_add, .wait = no_wait, .check = always_there};
    tt_store *store = NULL;
    assert_int_equal(tt_store_new(&store, &class, &f), TT_OK);
    const tt__rendezvous at = {.store = store, .prefix = "", .rank = 0, .world = 2};
    tt_status status = tt__launcher_note(&at, secret, 1, text, 96);
    tt_store_free(store);
    return status;
}

static void a_note_is_read(void **state) {
    char text[96];
    (void)state;
    assert_int_equal(read_note((failing){.value = "signal 9 (SIGKILL)"}, &(tt__secret){0}, text), TT_OK);
    assert_string_equal(text, "signal 9 (SIGKILL)");
}

/* A rank that took no notice asked a connection again that its interrupted call had closed, and failed for good. */
static void an_interrupted_read_says_so(void **state) {
    char text[96];
    (void)state;
    assert_int_equal(read_note((failing){.status = TT_ERR_ABORTED}, &(tt__secret){0}, text), TT_ERR_ABORTED);
    assert_string_equal(text, "");
    assert_int_equal(read_note((failing){.status = TT_ERR_NET}, &(tt__secret){0}, text), TT_ERR_NET);
    assert_string_equal(text, "");
}

static void what_is_not_the_launchers_counts_for_nothing(void **state) {
    char text[96];
    tt__secret secret = {0};
    (void)state;
    setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    assert_int_equal(read_note((failing){.value = "signal 9 (SIGKILL)"}, &secret, text), TT_OK);
    assert_string_equal(text, "");
    tt__secret_wipe(&secret);
    unsetenv("TT_SECRET");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_is_read),
        cmocka_unit_test(an_interrupted_read_says_so),
        cmocka_unit_test(what_is_not_the_launchers_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
