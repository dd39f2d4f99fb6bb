/* The store in etcd where it wants to know who asks: passwords, tokens, certificates; as another user of the machine;
 * and where its gateway is off. */
#include "support/etcd_fixture.h"

#include "base/machine/clock.h"
#include "store/etcd/etcd_client.h"
#include "store/etcd/etcd_text.h"

#include <stdlib.h>

static char certificates[64];

/* ---- users */

static void administer(const char *path, const char *body) {
    tt__etcd_client client;
    tt__span answer;
    good(tt__etcd_client_begin(&client, cluster.one[0], &(tt__etcd_credentials){0}));
    good(tt__etcd_call(&client, path, (tt__span){(const uint8_t *)body, strlen(body)}, 65536,
                       tt__deadline_ms(PATIENCE_MS), &answer));
    tt__etcd_client_end(&client);
}

/* A role's permission to read and write what begins with "jobs/17/". */
static void grant_jobs(const char *role) {
    tt__bytes body = {0};
    tt__etcd_put_text(&body, "{\"name\":\"");
    tt__etcd_put_text(&body, role);
    tt__etcd_put_text(&body, "\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"");
    tt__etcd_put_base64(&body, "jobs/17/", 8);
    tt__etcd_put_text(&body, "\",\"range_end\":\"");
    tt__etcd_put_base64(&body, "jobs/170", 8);
    tt__etcd_put_text(&body, "\"}}");
    tt__bytes_put(&body, "", 1);
    administer("/v3/auth/role/grant", (const char *)body.data);
    tt__bytes_free(&body);
}

static int start_with_users(void **state) {
    (void)state;
    etcd_start(&cluster, 1);
    administer("/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"secret\"}");
    administer("/v3/auth/user/add", "{\"name\":\"anna\",\"password\":\"pa\\\"ss\\\\word\"}");
    administer("/v3/auth/role/add", "{\"name\":\"root\"}");
    administer("/v3/auth/role/add", "{\"name\":\"jobs\"}");
    administer("/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    administer("/v3/auth/user/grant", "{\"user\":\"anna\",\"role\":\"jobs\"}");
    grant_jobs("jobs");
    administer("/v3/auth/enable", "{}");
    return 0;
}

static void use_store(tt_store *store) {
    int64_t n;
    tt_store_value value;
    good(tt_store_set(store, "k", "v", 1));
    good(tt_store_get(store, "k", &value));
    assert_string_equal(value.data, "v");
    tt_store_value_free(&value);
    good(tt_store_add(store, "n", 1, &n));
    good(tt_store_barrier(store, "b", 1, 0));
    good(tt_store_num_keys(store, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++)
        good(tt_store_delete_key(store, (const char *[]){"k", "n", "b"}[i], NULL));
}

static void users_prove_themselves(void **state) {
    (void)state;
    const char *at = cluster.endpoints;
    tt_store *store;
    fails(tt_etcd_store(&store, at, .prefix = "jobs/17", .timeout_ms = PATIENCE_MS), TT_ERR_AUTH,
          "give .user and .password");
    fails(
        tt_etcd_store(&store, at, .prefix = "jobs/17", .user = "anna", .password = "wrong", .timeout_ms = PATIENCE_MS),
        TT_ERR_AUTH, "authentication failed");
    assert_null(strstr(tt_last_error(), "wrong"));
    fails(tt_etcd_store(&store, at, .prefix = "jobs/18", .user = "anna", .password = "pa\"ss\\word",
                        .timeout_ms = PATIENCE_MS),
          TT_ERR_AUTH, "permission denied");
    fails(tt_etcd_store(&store, at, .prefix = "jobs/17", .token = "no.such.token", .timeout_ms = PATIENCE_MS),
          TT_ERR_AUTH, "invalid auth token");
    good(tt_etcd_store(&store, at, .prefix = "jobs/17", .user = "anna", .password = "pa\"ss\\word",
                       .timeout_ms = PATIENCE_MS));
    use_store(store);
    etcd_kill(&cluster, 0); /* it forgets its tokens: the store logs in again */
    etcd_run(&cluster, 0);
    use_store(store);
    tt_store_free(store);
    assert_int_equal(setenv("TT_ETCD_USER", "anna", 1) | setenv("TT_ETCD_PASSWORD", "pa\"ss\\word", 1), 0);
    tt_status status = tt_etcd_store(&store, at, .prefix = "jobs/17", .timeout_ms = PATIENCE_MS);
    unsetenv("TT_ETCD_USER");
    unsetenv("TT_ETCD_PASSWORD");
    good(status);
    tt_store_free(store);
}

/* A server that asks for no password takes one, as etcdctl finds. */
static void passwords_may_be_needless(void **state) {
    (void)state;
    tt_store *store;
    etcd_start(&cluster, 1);
    good(tt_etcd_store(&store, cluster.endpoints, .user = "anna", .password = "p", .timeout_ms = PATIENCE_MS));
    use_store(store);
    tt_store_free(store);
}

/* ---- certificates */

static int run_openssl(const char *commands) {
    char line[2048];
    snprintf(line, sizeof line, "cd %s && { %s; } >openssl.log 2>&1", certificates, commands);
    return system(line); /* NOLINT: the test's own command */
}

static int start_with_certificates(void **state) {
    (void)state;
    snprintf(certificates, sizeof certificates, "/tmp/tutti-etcd-tls-XXXXXX");
    assert_non_null(mkdtemp(certificates));
    assert_int_equal(
        run_openssl("for ca in ca other; do openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$ca "
                    "-keyout $ca.key -out $ca.pem || exit 1; done; "
                    "for who in server client; do openssl req -newkey rsa:2048 -nodes -subj /CN=$who -keyout $who.key "
                    "-out $who.csr && printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' "
                    ">$who.ext && openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
                    "-extfile $who.ext -out $who.pem || exit 1; done"),
        0);
    static char words[3][96];
    snprintf(words[0], sizeof words[0], "--cert-file=%s/server.pem", certificates);
    snprintf(words[1], sizeof words[1], "--key-file=%s/server.key", certificates);
    snprintf(words[2], sizeof words[2], "--trusted-ca-file=%s/ca.pem", certificates);
    const char *more[] = {words[0], words[1], words[2], "--client-cert-auth", NULL};
    etcd_start_with(&cluster, 1, "https", more);
    return 0;
}

static int stop_and_remove_certificates(void **state) {
    stop_all(state);
    return nftw(certificates, etcd_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_certificates(const char *name) {
    static char paths[8][96];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", certificates, name);
    return path;
}

static void certificates_are_checked(void **state) {
    (void)state;
    enum { SHORT_MS = 1500 };
    tt_store *store;
    char plain[32];
    const char *at = cluster.endpoints, *ca = in_certificates("ca.pem");
    fails(tt_etcd_store(&store, at, .timeout_ms = PATIENCE_MS), TT_ERR_AUTH, "certificate");
    fails(tt_etcd_store(&store, at, .ca_file = in_certificates("other.pem"), .timeout_ms = PATIENCE_MS), TT_ERR_AUTH,
          "certificate");
    fails(tt_etcd_store(&store, at, .ca_file = in_certificates("none.pem"), .timeout_ms = PATIENCE_MS), TT_ERR_AUTH,
          "none.pem");
    /* the server asks for ours, and closes the connection */
    assert_int_not_equal(tt_etcd_store(&store, at, .ca_file = ca, .timeout_ms = SHORT_MS), TT_OK);
    good(tt_etcd_store(&store, at, .ca_file = ca, .cert_file = in_certificates("client.pem"),
                       .key_file = in_certificates("client.key"), .timeout_ms = PATIENCE_MS));
    use_store(store);
    tt_store_free(store);
    snprintf(plain, sizeof plain, "http://127.0.0.1:%d", cluster.ports[0]);
    /* newer servers say what is wrong, older ones close the connection */
    assert_int_not_equal(tt_etcd_store(&store, plain, .timeout_ms = SHORT_MS), TT_OK);
    assert_non_null(strstr(tt_last_error(), plain));
}

/* ---- what is not there */

static void a_gateway_may_be_off(void **state) {
    (void)state;
    tt_store *store;
    const char *more[] = {"--enable-grpc-gateway=false", NULL};
    etcd_start_with(&cluster, 1, "http", more);
    fails(tt_etcd_store(&store, cluster.endpoints, .timeout_ms = PATIENCE_MS), TT_ERR_UNSUPPORTED,
          "its JSON gateway is off");
}

/* Server and store of a user who is not root. */
static void other_users_may(void **state) {
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        tt_store *store;
        etcd own;
        if (getuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(2);
        etcd_start(&own, 1);
        tt_status status = tt_etcd_store(&store, own.endpoints, .timeout_ms = PATIENCE_MS);
        if (!status)
            status = tt_store_set(store, "k", "v", 1);
        if (status)
            fprintf(stderr, "%s\n", tt_last_error());
        tt_store_free(store);
        etcd_stop(&own);
        _exit(status != TT_OK);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void) {
    if (!etcd_is_installed()) {
        puts("skipped: etcd is not installed (package etcd-server)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(users_prove_themselves, start_with_users, stop_all),
        cmocka_unit_test_setup_teardown(passwords_may_be_needless, NULL, stop_all),
        cmocka_unit_test_setup_teardown(certificates_are_checked, start_with_certificates,
                                        stop_and_remove_certificates),
        cmocka_unit_test_setup_teardown(a_gateway_may_be_off, NULL, stop_all),
        cmocka_unit_test(other_users_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
