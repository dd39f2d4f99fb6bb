/* Cards in the store that no worker writes: whoever may write to the store can put there what it likes. Others tell
 * their names themselves once they are reached, nobody waits without end, and no name is passed on that can't be
 * one. */
#include "support/patience.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "rpc/workers/store_cards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOIN_MS = 2000 };

static tt_store *empty_store(void) {
    tt_store *store;
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    return store;
}

static void *no_packet(void *user, int peer, size_t bytes) {
    (void)user;
    (void)peer;
    (void)bytes;
    return NULL;
}

static tt_status join_store(tt__rpc_network **out, tt_store *store, const char *name) {
    static const tt__packet_taker taker = {.room = no_packet};
    TT__TRY(tt__rpc_network_of_store(
        out, &(tt_rpc_init_args){
                 .name = name, .store = store, .heartbeat_ms = CALM_MS, .join_timeout_ms = JOIN_MS + leeway_ms()}));
    pthread_mutex_lock((*out)->lock);
    tt__messages_take_packets((*out)->messages, &taker, NULL);
    pthread_mutex_unlock((*out)->lock);
    return TT_OK;
}

static void leave_store(tt__rpc_network *network) { network->ops->close(network, false); }

static void write_key(tt_store *store, const char *key, const char *text) {
    assert_int_equal(tt_store_set(store, key, text, strlen(text)), TT_OK);
}

static int find_by_name(tt__rpc_network *network, const char *name) {
    int id = -1;
    pthread_mutex_lock(network->lock);
    tt_status status = network->ops->find(network, name, &id);
    pthread_mutex_unlock(network->lock);
    return status ? -1 : id;
}

static const char *name_of_id(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]) {
    pthread_mutex_lock(network->lock);
    tt_status status = network->ops->name_of(network, id, name);
    pthread_mutex_unlock(network->lock);
    return status ? "" : name;
}

static void expect_reached(tt__rpc_network *network, int id) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    tt__rpc_reach result;
    pthread_mutex_lock(network->lock);
    while ((result = network->ops->reach(network, id)) == TT__RPC_CONNECTING && tt__left_ms(deadline_ms))
        network->ops->sleep(network, 100);
    tt__messages_leave(network->messages);
    pthread_mutex_unlock(network->lock);
    assert_int_equal(result, TT__RPC_REACHED);
}

static void a_worker_that_is_linked_keeps_its_name(void **state) {
    (void)state;
    tt_store *store = empty_store();
    tt__rpc_network *a, *b;
    char name[TT__RPC_NAME_SIZE];
    assert_int_equal(join_store(&a, store, "a"), TT_OK);
    assert_int_equal(join_store(&b, store, "b"), TT_OK);
    expect_reached(a, b->self);
    write_key(store, "rpc/name/other", "1 other here 0000000000000000 1.2.3.4");
    write_key(store, "rpc/name/self", "0 self here 0000000000000000 1.2.3.4");
    assert_int_equal(find_by_name(a, "other"), -1);
    assert_int_equal(find_by_name(a, "self"), -1);
    assert_string_equal(name_of_id(a, b->self, name), "b");
    assert_int_equal(find_by_name(a, "b"), b->self);
    expect_reached(a, b->self);
    leave_store(a);
    leave_store(b);
    tt_store_free(store);
}

static void no_card_keeps_a_name_from_its_worker(void **state) {
    static const char *const cards[] = {"7  a here 0000000000000000 1.2.3.4", "7 a here 0 1.2.3.4",
                                        "7 a here 0000000000000000 1.2.3.4 and more", "", "?"};
    (void)state;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        tt_store *store = empty_store();
        tt__rpc_network *a;
        write_key(store, "rpc/name/a", cards[i]);
        assert_int_equal(join_store(&a, store, "a"), TT_OK);
        leave_store(a);
        tt_store_free(store);
    }
}

static void names_that_none_can_have_are_no_names(void **state) {
    (void)state;
    tt_store *store = empty_store();
    tt__rpc_network *a;
    char name[TT__RPC_NAME_SIZE];
    assert_int_equal(join_store(&a, store, "a"), TT_OK);
    write_key(store, "rpc/worker/5", "5 \x1b[31mred here 0000000000000000 1.2.3.4");
    assert_string_equal(name_of_id(a, 5, name), "");
    leave_store(a);
    tt_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_is_linked_keeps_its_name),
        cmocka_unit_test(names_that_none_can_have_are_no_names),
        cmocka_unit_test(no_card_keeps_a_name_from_its_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
