/* Strangers who call a rank while it joins are hung up on, and the job goes on. */
#include "support/ranks.h"

#include "comm/rendezvous/rendezvous.h"

#include <sys/socket.h>
#include <sys/un.h>

static void call_as_stranger(const char *name, const void *words, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    CHECK(s >= 0);
    CHECK(!connect(s, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))));
    CHECK(!size || send(s, words, size, MSG_NOSIGNAL) == (ssize_t)size);
    close(s);
}

/* Rank 1 first calls rank 0 with what no rank says, then joins as it should. */
static int strangers_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    if (rank == 1) {
        tt_store_value card;
        char name[64], garbage[45] = "tutti-1";
        CHECK_OK(tt_store_get(store, "tutti/0/1/rank/0", &card));
        CHECK(sscanf(card.data, "tutti %*d %*d %*d %*s %*s %*s %63s", name) == 1);
        tt_store_value_free(&card);
        call_as_stranger(name, NULL, 0);
        call_as_stranger(name, "hello", 5);
        call_as_stranger(name, garbage, sizeof garbage);
    }
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static void strangers_are_hung_up_on(void **state) {
    (void)state;
    with_ranks(2, strangers_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_hung_up_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
