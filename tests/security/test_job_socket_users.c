/* A process of another user, as a rank that has changed its own under root's launcher, or who asks what root's job
 * does: the launcher serves it nothing, tells it so, and says so once. */
#include "support/ranks.h"

#include "security/other_user.h"

#include "launch/local/snapshot.h"
#include "net/job/job_socket.h"

#include <poll.h>

enum { CALLERS = 3 };

typedef struct callers {
    char name[TT__JOB_NAME_SIZE];
    int called[2];
} callers;

/* Ask as readers do. */
static int ask(void *arg) {
    const callers *c = arg;
    tt__snapshot snapshot;
    CHECK(tt__snapshot_ask(&snapshot, c->name, PATIENCE_MS) == TT_ERR_AUTH);
    CHECK_TEXT("refuses this process: it is user 61234's; served are user 0's and root's");
    return 0;
}

/* Say something that the launcher does not read. */
static int call_first(void *arg) {
    const callers *c = arg;
    tt__job_packet packet = {.recorder = {.rank = 1}};
    int fd, attached;
    CHECK_OK(tt__job_socket_connect(&fd, c->name, PATIENCE_MS));
    CHECK(tt__job_send(fd, TT__JOB_RECORDER, &packet, -1));
    CHECK(write(c->called[1], "", 1) == 1);
    CHECK(tt__job_receive(fd, &packet, &attached) == -1);
    CHECK(packet.kind == TT__JOB_REFUSED);
    CHECK(tt__job_receive(fd, &packet, &attached) == -1);
    CHECK(!packet.kind);
    return 0;
}

static int logged;

static void on_log(tt_log_level level, const char *line, void *user) {
    (void)user;
    logged += level == TT_LOG_WARNING && strstr(line, "was refused") && strstr(line, "it is user 61234's;");
}

static void others_are_told(void **state) {
    (void)state;
    callers c;
    char byte;
    pid_t pids[CALLERS];
    int listener;
    assert_int_equal(pipe(c.called), 0);
    assert_int_equal(tt__job_socket_name(c.name), TT_OK);
    assert_int_equal(tt__job_socket_listen(&listener, c.name), TT_OK);
    tt_set_log(on_log, NULL);
    pids[0] = start_as_user(STRANGER, call_first, &c);
    assert_int_equal(read(c.called[0], &byte, 1), 1);
    assert_int_equal(tt__job_socket_accept(listener), -1);
    assert_int_equal(end_of_process(pids[0]), 0);
    for (int i = 1; i < CALLERS; i++) {
        pids[i] = start_as_user(STRANGER, ask, &c);
        assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, PATIENCE_MS), 1);
        assert_int_equal(tt__job_socket_accept(listener), -1);
        assert_int_equal(end_of_process(pids[i]), 0);
    }
    tt_set_log(NULL, NULL);
    assert_int_equal(logged, 1);
    close(listener);
    close(c.called[0]);
    close(c.called[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_are_told),
    };
    int skipped = skipped_without_root();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
