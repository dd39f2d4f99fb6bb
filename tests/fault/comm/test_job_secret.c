/* Jobs of two hosts and their secret: with the same on both they run, plain and encrypted; with another, with none, or
 * half encrypted they end at once, and both sides say why. */
#include "support/netlab.h"
#include "support/process.h"

enum { MASTER_PORT = 29511 };

static netlab lab;
static char folder[64];

static void write_secret(const char *name) {
    char path[128], text[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "the well kept secret of %s\n", name);
    write_file(path, text, 0600);
}

static int open_lab(void **state) {
    (void)state;
    const char *why = netlab_open(&lab, 2);
    if (why) {
        fprintf(stderr, "skipped: %s\n", why);
        exit(77);
    }
    temporary_folder(folder);
    write_secret("a");
    write_secret("b");
    return 0;
}

static int close_lab(void **state) {
    (void)state;
    netlab_close(&lab);
    return remove_folder(folder) != 2;
}

/* One host's part: its secret's file (NULL: none), and whether it encrypts. */
typedef struct part {
    const char *secret;
    bool encrypted;
} part;

static process *start_on(int h, const part *p) {
    char rank[32], secret[160];
    const char *argv[] = {tutti(),
                          "run",
                          "--nnodes=2",
                          rank,
                          "--master-addr=10.77.0.1",
                          "--master-port=29511",
                          "--nproc-per-node=2",
                          "--rdzv-conf=timeout=60",
                          "--no-python",
                          secret,
                          tutti(),
                          "bench",
                          "startup",
                          NULL};
    const char *environment[] = {"TUTTI_BENCH_RANK=1",
                                 "OMP_NUM_THREADS=1",
                                 "TT_SECRET=",
                                 "TT_SECRET_FILE=",
                                 p->encrypted ? "TT_TLS=1" : "TT_TLS=0",
                                 "TT_LOG=info", /* says of each connection how it travels */
                                 NULL};
    snprintf(rank, sizeof rank, "--node-rank=%d", h);
    if (p->secret)
        snprintf(secret, sizeof secret, "--secret-file=%s/%s", folder, p->secret);
    else
        snprintf(secret, sizeof secret, "--store-auth=local");
    assert_int_equal(setns(lab.space[h], CLONE_NEWNET), 0);
    process *started = process_start(argv, environment, -1);
    assert_int_equal(setns(lab.lab, CLONE_NEWNET), 0);
    return started;
}

/* Host 1 ends by itself; host 0 would go on waiting for it. */
static void run(const part parts[2], bool works, const char *said[2]) {
    process *hosts[2];
    for (int h = 0; h < 2; h++)
        hosts[h] = start_on(h, &parts[h]);
    process_finish(hosts[1]);
    if (!works)
        kill(hosts[0]->pid, SIGTERM);
    process_finish(hosts[0]);
    for (int h = 0; h < 2; h++) {
        if ((hosts[h]->code == 0) != works || (said[h] && !strstr(hosts[h]->text[1], said[h])))
            fail_msg("host %d: exit code %d, expected %s and \"%s\":\n%s", h, hosts[h]->code,
                     works ? "success" : "failure", said[h] ? said[h] : "", hosts[h]->text[1]);
        process_free(hosts[h]);
    }
}

static void one_secret(void **state) {
    (void)state;
    run((const part[]){{"a", false}, {"a", false}}, true, (const char *[]){", sealed", ", sealed"});
    run((const part[]){{"a", true}, {"a", true}}, true, (const char *[]){", encrypted", ", encrypted"});
}

static void two_secrets(void **state) {
    (void)state;
    run((const part[]){{"a", false}, {"b", false}}, false,
        (const char *[]){"refused 10.77.0.2", "the other side has another job secret"});
    run((const part[]){{"a", true}, {"b", true}}, false, (const char *[]){"refused 10.77.0.2", "TLS failed"});
}

static void a_secret_and_none(void **state) {
    (void)state;
    run((const part[]){{"a", false}, {NULL, false}}, false, (const char *[]){"refused 10.77.0.2", "TT_SECRET"});
    run((const part[]){{NULL, false}, {"a", false}}, false,
        (const char *[]){"refused 10.77.0.2", "the other side has none"});
    run((const part[]){{NULL, false}, {NULL, false}}, false,
        (const char *[]){"comes from another machine", "TT_SECRET"});
}

static void half_encrypted(void **state) {
    (void)state;
    run((const part[]){{"a", true}, {"a", false}}, false, (const char *[]){"does not encrypt", "TT_TLS=1"});
    run((const part[]){{"a", false}, {"a", true}}, false, (const char *[]){"wants to encrypt", "TT_TLS=1"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_secret),
        cmocka_unit_test(two_secrets),
        cmocka_unit_test(a_secret_and_none),
        cmocka_unit_test(half_encrypted),
    };
    return cmocka_run_group_tests(tests, open_lab, close_lab);
}
