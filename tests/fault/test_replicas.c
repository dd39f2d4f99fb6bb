/* A store of three replicas, which are killed, frozen and started again while clients use it: whatever was acknowledged
 * is there, each write happened once, and where too few are left all calls end with an error that says why. */
#include "support/replicas.h"

#include "base/error.h"
#include "store/wire.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum { WRITERS = 4, KEYS = 5, KILLS = 6, ADDS = 3000 };

static replicas all;

static int open_all(void **state) {
    (void)state;
    memset(&all, 0, sizeof all);
    replicas_open(&all);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    replicas_close(&all);
    return 0;
}

static int64_t number_at(tt_store *store, const char *key) {
    tt_store_value value;
    if (tt_store_get(store, key, &value))
        fail_msg("%s", tt_last_error());
    int64_t number = strtoll(value.data, NULL, 10);
    tt_store_value_free(&value);
    return number;
}

/* ---- clients beside a naive model */

typedef struct writer {
    pthread_t thread;
    int number;
    _Atomic bool stop;
    int64_t writes, adds; /* acknowledged; those to the key of all */
    char model[KEYS][512];
    bool there[KEYS];
    char wrong[1024]; /* "": all is as expected */
} writer;

static bool differs(writer *w, const char *what, const char *expected, const char *got) {
    if (!strcmp(expected, got))
        return false;
    snprintf(w->wrong, sizeof w->wrong, "%s: expected \"%.200s\", got \"%.200s\"", what, expected, got);
    return true;
}

/* One write of a key of this writer's own. */
static tt_status write_one(writer *w, tt_store *store, unsigned *seed) {
    int k = (int)(rand_r(seed) % KEYS), what = (int)(rand_r(seed) % 4);
    char key[32], text[64], *model = w->model[k];
    snprintf(key, sizeof key, "of/%d/%d", w->number, k);
    snprintf(text, sizeof text, "%" PRId64 ",", w->writes);
    if (what == 0 || strlen(model) > 400) {
        TT__TRY(tt_store_set(store, key, text, strlen(text)));
        strcpy(model, text);
        w->there[k] = true;
    } else if (what == 1) {
        TT__TRY(tt_store_append(store, key, text, strlen(text)));
        strcat(model, text);
        w->there[k] = true;
    } else if (what == 2) {
        bool deleted;
        TT__TRY(tt_store_delete_key(store, key, &deleted));
        differs(w, "delete_key", w->there[k] ? "there" : "missing", deleted ? "there" : "missing");
        *model = '\0';
        w->there[k] = false;
    } else {
        tt_store_value value;
        TT__TRY(tt_store_compare_set(store, key, model, strlen(model), text, strlen(text), &value));
        differs(w, "compare_set", text, value.data);
        tt_store_value_free(&value);
        strcpy(model, text);
        w->there[k] = true;
    }
    w->writes++;
    return TT_OK;
}

static tt_status write_and_add(writer *w, tt_store *store) {
    unsigned seed = (unsigned)w->number + 1;
    while (!w->stop && !*w->wrong) {
        int64_t own;
        char key[32], got[32], expected[32];
        TT__TRY(write_one(w, store, &seed));
        TT__TRY(tt_store_add(store, "all", 1, NULL));
        w->adds++;
        snprintf(key, sizeof key, "own/%d", w->number);
        TT__TRY(tt_store_add(store, key, 1, &own));
        snprintf(got, sizeof got, "%" PRId64, own);
        snprintf(expected, sizeof expected, "%" PRId64, w->adds);
        differs(w, "add", expected, got);
    }
    for (int k = 0; k < KEYS && !*w->wrong; k++) {
        char key[32];
        tt_store_value value;
        snprintf(key, sizeof key, "of/%d/%d", w->number, k);
        if (!w->there[k])
            continue;
        TT__TRY(tt_store_get(store, key, &value));
        differs(w, key, w->model[k], value.data);
        tt_store_value_free(&value);
    }
    return TT_OK;
}

static void *writer_thread(void *arg) {
    writer *w = arg;
    tt_store *store;
    if (tt__replica_store(&store, &all.place, NULL, PATIENCE_MS) || write_and_add(w, store))
        snprintf(w->wrong, sizeof w->wrong, "%s", tt_last_error());
    tt_store_free(store);
    return NULL;
}

/* Each is killed in turn, the one that leads among them, and comes back with nothing but what the others tell it. */
static void test_every_replica_is_lost_once_and_more(void **state) {
    (void)state;
    static writer writers[WRITERS];
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    int64_t sum = 0, before = -1;
    replicas_wait(&all);
    for (int i = 0; i < WRITERS; i++) {
        writers[i].number = i;
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_thread, &writers[i]), 0);
    }
    for (int i = 0; i < KILLS; i++) {
        replicas_stop_one(&all, i % REPLICAS, SIGKILL);
        for (int64_t now = before; now <= before;) /* the others serve */
            if (tt_store_add(store, "all", 0, &now))
                fail_msg("%s", tt_last_error());
        replicas_run(&all, i % REPLICAS);
        replicas_wait(&all);
        before = number_at(store, "all");
    }
    for (int i = 0; i < WRITERS; i++)
        writers[i].stop = true;
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_string_equal(writers[i].wrong, "");
        assert_true(writers[i].adds > 0);
        sum += writers[i].adds;
    }
    assert_int_equal(number_at(store, "all"), sum);
    tt_store_free(store);
}

/* One that comes back when the log's beginning is gone gets all that the store holds at once. */
static void test_who_was_away_long_catches_up(void **state) {
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    int64_t n = 0;
    char large[2000];
    memset(large, 'x', sizeof large);
    replicas_wait(&all);
    replicas_stop_one(&all, 1, SIGKILL);
    for (int i = 0; i < ADDS; i++)
        assert_int_equal(tt_store_add(store, "count", 1, &n), TT_OK);
    for (int i = 0; i < 50; i++) {
        char key[32];
        snprintf(key, sizeof key, "large/%d", i);
        assert_int_equal(tt_store_set(store, key, large, sizeof large), TT_OK);
    }
    replicas_run(&all, 1);
    replicas_wait(&all);
    for (int i = 0; i < REPLICAS; i += 2) { /* it is needed when each of the others is lost */
        tt_store_value value;
        int64_t keys;
        replicas_stop_one(&all, i, SIGKILL);
        assert_int_equal(number_at(store, "count"), ADDS);
        assert_int_equal(tt_store_get(store, "large/49", &value), TT_OK);
        assert_int_equal(value.size, sizeof large);
        assert_memory_equal(value.data, large, sizeof large);
        tt_store_value_free(&value);
        assert_int_equal(tt_store_num_keys(store, &keys), TT_OK);
        assert_int_equal(keys, 51);
        replicas_run(&all, i);
        replicas_wait(&all);
    }
    tt_store_free(store);
}

/* Large values fill the log sooner than there are many: it is cut short by what they take. */
static void test_large_values_do_not_stay(void **state) {
    enum { VALUES = 100, SIZE = 1000000, MOST_KIB = (32 + 16 + 2) << 10, KEPT_KIB = (16 + 1) << 10 };
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    char *large = calloc(1, SIZE);
    assert_non_null(large);
    replicas_wait(&all);
    for (int i = 0; i < VALUES; i++) {
        large[0] = (char)i;
        assert_int_equal(tt_store_set(store, "large", large, SIZE), TT_OK);
    }
    for (int i = 0; i < REPLICAS; i++) {
        static const char said[] = " KiB were in the log, ";
        process_expect(all.running[i], 1, said, 2);
        for (const char *at = all.running[i]->text[1]; (at = strstr(at, said)); at++) {
            const char *from = at;
            while (from[-1] >= '0' && from[-1] <= '9')
                from--;
            assert_in_range(strtol(from, NULL, 10), 1, MOST_KIB);
            assert_in_range(strtol(at + strlen(said), NULL, 10), 1, KEPT_KIB);
        }
    }
    replicas_stop_one(&all, 1, SIGKILL); /* who comes back gets it at once */
    replicas_run(&all, 1);
    replicas_wait(&all);
    replicas_stop_one(&all, 0, SIGKILL);
    tt_store_value value;
    assert_int_equal(tt_store_get(store, "large", &value), TT_OK);
    assert_int_equal(value.size, SIZE);
    assert_memory_equal(value.data, large, SIZE);
    tt_store_value_free(&value);
    tt_store_free(store);
    free(large);
}

/* ---- those that wait */

static void *wait_for_key(void *arg) {
    const char *key = "awaited";
    tt_store *store = arg;
    return tt_store_wait(store, &key, 1, PATIENCE_MS) ? strdup(tt_last_error()) : NULL;
}

/* Who waits for a key hears of it, whichever replica it was that it asked. */
static void test_waits_outlive_replicas(void **state) {
    (void)state;
    pthread_t threads[2];
    tt_store *store = replicas_client(&all, PATIENCE_MS), *waiting[2];
    replicas_wait(&all);
    for (int i = 0; i < 2; i++) {
        waiting[i] = replicas_client(&all, PATIENCE_MS);
        assert_int_equal(tt_store_set(waiting[i], "is/there", "1", 1), TT_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_key, waiting[i]), 0);
    }
    for (int i = 0; i < REPLICAS; i++) {
        replicas_stop_one(&all, i, SIGKILL);
        replicas_run(&all, i);
        replicas_wait(&all);
    }
    assert_int_equal(tt_store_set(store, "awaited", "1", 1), TT_OK);
    for (int i = 0; i < 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong)
            fail_msg("%s", (char *)wrong);
        tt_store_free(waiting[i]);
    }
    tt_store_free(store);
}

/* ---- too few */

static void assert_no_leader(tt_status status) {
    assert_int_equal(status, TT_ERR_TIMEOUT);
    assert_contains(tt_last_error(), "none of the store's 3 replicas served it in time, of which 2 must be there: ");
}

/* A minority serves nobody, neither writes nor reads, and says so by the deadline; when the others go on, so does the
 * store, with each write at most once. */
static void test_a_minority_refuses(void **state) {
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS), *brief = replicas_client(&all, 3000);
    bool there;
    int64_t n = 0, unknown = 0;
    const char *key = "count";
    replicas_wait(&all);
    assert_int_equal(tt_store_add(store, key, 1, &n), TT_OK);
    for (int i = 0; i < 2; i++)
        kill(all.running[i]->pid, SIGSTOP);
    assert_no_leader(tt_store_add(brief, key, 1, &unknown));
    assert_no_leader(tt_store_check(brief, &key, 1, &there));
    assert_no_leader(tt_store_wait(brief, &key, 1, 1000));
    for (int i = 0; i < 2; i++)
        kill(all.running[i]->pid, SIGCONT);
    assert_int_equal(tt_store_add(store, key, 1, &n), TT_OK);
    assert_in_range(n, 2, 3); /* the one whose answer did not come may have happened */
    tt_store_free(brief);
    tt_store_free(store);
}

/* One that accepts and does not answer takes no more than its share of a call. */
static void test_one_is_silent(void **state) {
    enum { BRIEF_MS = 2000 };
    (void)state;
    replicas_wait(&all);
    for (int i = 0; i < REPLICAS; i++) {
        kill(all.running[i]->pid, SIGSTOP);
        tt_store *store = replicas_client(&all, BRIEF_MS);
        tt_status status = TT_ERR_TIMEOUT;
        for (int tries = 0; status && tries < PATIENCE_MS / BRIEF_MS; tries++) /* it may have led */
            status = tt_store_set(store, "key", "value", 5);
        assert_int_equal(status, TT_OK);
        tt_store_free(store);
        kill(all.running[i]->pid, SIGCONT);
    }
}

/* Nobody can know what was agreed on when two are gone; new ones begin no other store beside what is left. */
static void test_two_lost_at_once_begin_no_other_store(void **state) {
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS), *brief = replicas_client(&all, 2500);
    replicas_wait(&all);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    replicas_stop_one(&all, 0, SIGKILL);
    replicas_stop_one(&all, 1, SIGKILL);
    replicas_run(&all, 0);
    replicas_run(&all, 1);
    assert_no_leader(tt_store_set(brief, "key", "other", 5));
    replicas_stop_one(&all, 2, SIGKILL); /* started again as well, they are a new store */
    replicas_run(&all, 2);
    int64_t keys;
    assert_int_equal(tt_store_num_keys(store, &keys), TT_OK);
    assert_int_equal(keys, 0);
    tt_store_free(brief);
    tt_store_free(store);
}

/* One that comes back just when the one that leads has lost the others, and is to be taken in by that one, which is
 * lost as well, is new again after a while: it does not wait forever. */
static void test_taken_in_by_one_that_is_lost(void **state) {
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    int64_t keys;
    int leader = -1;
    replicas_wait(&all);
    for (int i = 0; i < REPLICAS; i++) {
        process_read(all.running[i], 0);
        if (count_of(all.running[i]->text[1], " leads\n") > count_of(all.running[i]->text[1], " leads no more"))
            leader = i;
    }
    assert_true(leader >= 0);
    int first = leader == 0, second = 3 - leader - first; /* who is started takes the first place that is free */
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    kill(all.running[second]->pid, SIGKILL);
    replicas_stop_one(&all, first, SIGKILL);
    replicas_stop_one(&all, second, SIGKILL);
    replicas_run(&all, first);
    process_expect(all.running[leader], 1, " leads no more", 1);
    replicas_stop_one(&all, leader, SIGKILL);
    replicas_run(&all, leader < second ? leader : second);
    replicas_run(&all, leader < second ? second : leader);
    assert_int_equal(tt_store_num_keys(store, &keys), TT_OK);
    assert_int_equal(keys, 0);
    tt_store_free(store);
}

static void test_what_is_refused(void **state) {
    (void)state;
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    int64_t n;
    char *large = calloc(1, 2 << 20);
    assert_int_equal(tt_store_set(store, "word", "hello", 5), TT_OK);
    assert_int_equal(tt_store_add(store, "word", 1, &n), TT_ERR_PROTOCOL);
    assert_contains(tt_last_error(), "store: add \"word\": the store refuses it: ");
    assert_int_equal(tt_store_set(store, "large", large, 2 << 20), TT_ERR_PROTOCOL);
    assert_contains(tt_last_error(), "a store of several replicas takes at most 1048576");
    assert_int_equal(tt_store_add(store, "number", 5, &n), TT_OK);
    assert_int_equal(n, 5);
    free(large);
    tt_store_free(store);
}

/* ---- strangers */

static int connect_to(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Speak as a replica would that had been admitted. */
static void feed_as_a_replica(int port) {
    tt__bytes words = {0}, hello = {0}, tell = {0};
    char answer[256];
    tt__replica_put_hello(&hello, &(tt__replica_hello){.member = 1, .id = 77, .cluster = 0});
    tt__store_put_u64(&tell, 77);
    tt__store_put_u8(&tell, TT__REPLICA_WELCOME);
    tt__store_put_u8(&words, 0); /* VALIDATE */
    tt__store_put_u32(&words, TT__STORE_MAGIC);
    tt__store_put_u8(&words, 194); /* REPLICA_PEER */
    tt__store_put_string(&words, (tt__span){hello.data, hello.size});
    tt__store_put_u8(&words, 195); /* REPLICA_TELL */
    tt__store_put_string(&words, (tt__span){tell.data, tell.size});
    int fd = connect_to(port);
    if (send(fd, words.data, words.size, MSG_NOSIGNAL) > 0)
        assert_true(recv(fd, answer, sizeof answer, 0) <= 0); /* closed without a word */
    close(fd);
    tt__bytes_free(&words);
    tt__bytes_free(&hello);
    tt__bytes_free(&tell);
}

/* Without the secret nobody is served, taken in, or listened to as a replica. */
static void test_strangers(void **state) {
    (void)state;
    char path[128], folder[64], flag[160], wrong[160];
    temporary_folder(folder);
    snprintf(path, sizeof path, "%s/wrong", folder);
    write_file(path, "another well kept secret of others\n", 0600);
    snprintf(wrong, sizeof wrong, "--secret-file=%s", path);
    snprintf(path, sizeof path, "%s/right", folder);
    write_file(path, "the well kept secret of this job\n", 0600);
    snprintf(flag, sizeof flag, "--secret-file=%s", path);
    memset(&all, 0, sizeof all);
    all.more[0] = "--store-auth=required";
    all.more[1] = flag;
    replicas_open(&all);
    tt_store *store, *stranger = replicas_client(&all, 5000);
    assert_int_equal(tt__replica_store(&store, &all.place, "the well kept secret of this job", PATIENCE_MS), TT_OK);
    replicas_wait(&all);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    assert_int_not_equal(tt_store_set(stranger, "key", "other", 5), TT_OK);
    for (int i = 0; i < REPLICAS; i++)
        feed_as_a_replica(all.ports[i]);
    replicas_stop_one(&all, 2, SIGKILL);
    all.more[1] = wrong;
    replicas_run(&all, 2); /* a stranger in its place */
    tt_store *brief;
    assert_int_equal(tt__replica_store(&brief, &all.place, "another well kept secret of others", 2000), TT_OK);
    assert_int_not_equal(tt_store_set(brief, "key", "other", 5), TT_OK);
    assert_int_equal(tt_store_set(store, "key", "newer", 5), TT_OK);
    process_read(all.running[2], 0);
    assert_null(strstr(all.running[2]->text[1], "holds all of the store"));
    all.more[1] = flag;
    replicas_stop_one(&all, 2, SIGKILL);
    replicas_run(&all, 2);
    replicas_wait(&all);
    tt_store_value value;
    assert_int_equal(tt_store_get(store, "key", &value), TT_OK);
    assert_string_equal(value.data, "newer");
    tt_store_value_free(&value);
    tt_store_free(brief);
    tt_store_free(stranger);
    tt_store_free(store);
    remove_folder(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_replica_is_lost_once_and_more, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_who_was_away_long_catches_up, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_large_values_do_not_stay, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_waits_outlive_replicas, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_a_minority_refuses, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_one_is_silent, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_two_lost_at_once_begin_no_other_store, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_taken_in_by_one_that_is_lost, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_what_is_refused, open_all, close_all),
        cmocka_unit_test_teardown(test_strangers, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
