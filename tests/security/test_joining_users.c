/* What another user of this machine gets from ranks that join, and how far it can keep them: nothing, and not at
 * all. */
#include "support/patience.h"
#include "support/ranks.h"

#include "security/other_user.h"

#include "base/machine/clock.h"
#include "comm/native/native.h"
#include "comm/shared/shm_connect.h"
#include "net/local_socket.h"

#include <poll.h>
#include <sys/socket.h>

/* ---- memory goes to no other user */

typedef struct thief {
    char name[64];
    int ready[2];
} thief;

/* Listen where the store says that rank 0 does. 0: nothing came; 1: a packet; 2: memory. */
static int listen_as_rank(void *arg) {
    const thief *t = arg;
    struct sockaddr_un address;
    socklen_t length = tt__abstract_address(&address, t->name);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd;
    char packet[256];
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 8) || write(t->ready[1], "", 1) != 1)
        return 98;
    int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (caller < 0)
        return 97;
    ssize_t n = tt__receive_packet(caller, packet, sizeof packet, 0, &fd);
    return n > 0 ? 1 + (fd >= 0) : 0;
}

static tt__world *a_rank(int rank, int world, tt__card *cards) {
    tt__world *w;
    assert_int_equal(tt__world_make(&w, rank, world, CALM_MS, &(tt__agent_store){0}), TT_OK);
    assert_int_equal(tt__world_make_memory(w), TT_OK);
    assert_int_equal(tt__card_make(&cards[rank], world, "auto", NULL), TT_OK);
    assert_int_equal(tt__listen(&w->listener, world, &cards[rank]), TT_OK);
    for (int r = 0; r < world; r++)
        w->peers[r].local = true;
    return w;
}

static void memory_goes_to_no_other_user(void **state) {
    (void)state;
    thief t;
    char byte;
    tt__card cards[2] = {0};
    tt__world *world = a_rank(1, 2, cards);
    snprintf(t.name, sizeof t.name, "tutti-test-thief-%d", (int)getpid());
    assert_int_equal(pipe(t.ready), 0);
    pid_t pid = start_as_user(STRANGER, listen_as_rank, &t);
    assert_int_equal(read(t.ready[0], &byte, 1), 1);
    cards[0] = cards[1];
    snprintf(cards[0].socket, sizeof cards[0].socket, "%s", t.name);
    tt_status status = tt__connect_all(world, cards, tt__deadline_ms(PATIENCE_MS));
    char text[256];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt__world_end(world);
    assert_int_equal(end_of_process(pid), 0);
    assert_int_equal(status, TT_ERR_AUTH);
    assert_non_null(strstr(text, "belongs to another user"));
}

/* ---- silent callers don't keep ranks waiting */

enum { SILENT = 20 };

typedef struct crowd {
    const char *name;
    int ready[2];
} crowd;

static int call_and_say_nothing(void *arg) {
    const crowd *c = arg;
    struct sockaddr_un address;
    socklen_t length = tt__abstract_address(&address, c->name);
    for (int i = 0; i < SILENT; i++) {
        int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(s, (struct sockaddr *)&address, length);
    }
    if (write(c->ready[1], "", 1) != 1)
        return 1;
    pause();
    return 0;
}

/* Two ranks, threads of this process; strangers stand at the lower one's door before the higher one calls. */
typedef struct caller {
    tt__world *world;
    tt__card *cards;
    tt_status status;
} caller;

static void *join_as_rank_1(void *arg) {
    caller *c = arg;
    c->status = tt__connect_all(c->world, c->cards, tt__deadline_ms(PATIENCE_MS));
    return NULL;
}

static void ranks_meet_behind(uid_t user) {
    tt__card cards[2] = {0};
    tt__world *worlds[2] = {a_rank(0, 2, cards), a_rank(1, 2, cards)};
    crowd c = {.name = cards[0].socket};
    caller other = {.world = worlds[1], .cards = cards};
    pthread_t thread;
    char byte;
    assert_int_equal(listen(worlds[0]->listener, 2 * SILENT), 0); /* room for them and the rank */
    assert_int_equal(pipe(c.ready), 0);
    pid_t pid = start_as_user(user, call_and_say_nothing, &c);
    assert_int_equal(read(c.ready[0], &byte, 1), 1);
    int64_t began_ms = tt__now_ms();
    assert_int_equal(pthread_create(&thread, NULL, join_as_rank_1, &other), 0);
    assert_int_equal(tt__connect_all(worlds[0], cards, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, TT_OK);
    assert_true(tt__now_ms() - began_ms < 500 * SILENT); /* a second for each, if they were heard one at a time */
    kill(pid, SIGKILL);
    assert_int_equal(end_of_process(pid), 128 + SIGKILL);
    tt__world_end(worlds[0]);
    tt__world_end(worlds[1]);
}

static void silent_callers_cost_nothing(void **state) {
    (void)state;
    ranks_meet_behind(STRANGER);
    ranks_meet_behind(geteuid());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_to_no_other_user),
        cmocka_unit_test(silent_callers_cost_nothing),
    };
    int skipped = skipped_without_root();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
