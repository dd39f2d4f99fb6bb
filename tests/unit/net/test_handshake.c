/* The handshake as a machine: who is let in, who is not and why, and what recorded or reflected messages are good for.
 * Its keys against the RFCs' vectors; where the secret comes from. */
#include "net/secure/handshake.h"
#include "net/secure/secret.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static tt__span text(const char *bytes) { return (tt__span){(const uint8_t *)bytes, strlen(bytes)}; }

static void check_hex(const uint8_t got[TT__MAC_SIZE], const char *expected) {
    char hex[2 * TT__MAC_SIZE + 1];
    for (int i = 0; i < TT__MAC_SIZE; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", got[i]);
    assert_string_equal(hex, expected);
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
static void macs(void **state) {
    (void)state;
    uint8_t key[131], mac[TT__MAC_SIZE];
    tt__span parts[] = {text("Hi T"), text("here")};
    memset(key, 0x0b, 20);
    tt__mac(mac, (tt__span){key, 20}, parts, 2);
    check_hex(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    parts[0] = text("what do ya want for nothing?");
    tt__mac(mac, text("Jefe"), parts, 1);
    check_hex(mac, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    parts[0] = text("Test Using Larger Than Block-Size Key - Hash Key First");
    tt__mac(mac, (tt__span){key, sizeof key}, parts, 1);
    check_hex(mac, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* RFC 5869, cases 1 and 3: the first 32 of their 42 bytes. */
static void derived_keys(void **state) {
    (void)state;
    uint8_t secret[22], salt[13], purpose[10], key[TT__MAC_SIZE];
    memset(secret, 0x0b, sizeof secret);
    for (size_t i = 0; i < sizeof salt; i++)
        salt[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof purpose; i++)
        purpose[i] = (uint8_t)(0xf0 + i);
    tt__mac_derive(key, (tt__span){secret, 22}, (tt__span){salt, 13}, (tt__span){purpose, 10});
    check_hex(key, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    tt__mac_derive(key, (tt__span){secret, 22}, (tt__span){0}, (tt__span){0});
    check_hex(key, "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

/* ---- two sides and what goes between them ---- */

static const char job_secret[] = "an old and well kept secret", other_secret[] = "a new and equally kept one";
static tt__secret ours, theirs;

static int derive(void **state) {
    (void)state;
    tt__secret_from(&ours, job_secret, strlen(job_secret));
    tt__secret_from(&theirs, other_secret, strlen(other_secret));
    return 0;
}

static tt__handshake_role role_of(bool server, const tt__secret *secret) {
    return (tt__handshake_role){.server = server,
                                .purpose = TT__PURPOSE_TRANSPORT,
                                .secret = secret,
                                .job = "the job's number",
                                .rank = server ? 0 : 3,
                                .peer = server ? TT__ANY_RANK : 0};
}

/* `from`'s words to `to`, `chunk` bytes at a time. */
static bool carry(tt__handshake *from, tt__handshake *to, size_t chunk) {
    bool any = from->out_size > 0;
    while (from->out_size) {
        size_t n = from->out_size < chunk ? from->out_size : chunk;
        if (tt__handshake_feed(to, from->out, n) != n) {
            from->out_size = 0;
            break;
        }
        tt__handshake_sent(from, n);
    }
    return any;
}

static void converse(tt__handshake *client, const tt__handshake_role *as_client, tt__handshake *server,
                     const tt__handshake_role *as_server, size_t chunk) {
    assert_int_equal(tt__handshake_begin(server, as_server), TT_OK);
    assert_int_equal(tt__handshake_begin(client, as_client), TT_OK);
    bool any;
    do {
        any = carry(client, server, chunk);
        any |= carry(server, client, chunk);
    } while (any);
}

static void both_are_let_in(void **state) {
    (void)state;
    const tt__secret *secrets[] = {&ours, NULL, &(tt__secret){0}};
    for (size_t i = 0; i < 3; i++)
        for (size_t chunk = 1; chunk <= 65; chunk += 8) {
            tt__handshake client, server;
            tt__handshake_role c = role_of(false, secrets[i]), s = role_of(true, secrets[i]);
            converse(&client, &c, &server, &s, chunk);
            assert_int_equal(client.state, TT__HANDSHAKE_DONE);
            assert_int_equal(server.state, TT__HANDSHAKE_DONE);
            assert_int_equal(server.peer, 3);
            assert_int_equal(client.peer, 0);
            assert_int_equal(tt__handshake_wants(&client), 0);
            assert_int_equal(tt__handshake_feed(&client, "more", 4), 0); /* what follows is not the handshake's */
        }
}

/* A store's client asks for no job, and is told the store's. */
static void a_stores_client_learns_its_job(void **state) {
    (void)state;
    tt__handshake client, server;
    tt__handshake_role c = role_of(false, &ours), s = role_of(true, &ours);
    c.purpose = s.purpose = TT__PURPOSE_STORE;
    memset(c.job, 0, sizeof c.job);
    converse(&client, &c, &server, &s, 64);
    assert_int_equal(client.state, TT__HANDSHAKE_DONE);
    assert_int_equal(server.state, TT__HANDSHAKE_DONE);
    assert_memory_equal(client.job, s.job, sizeof s.job);
    memcpy(c.job, s.job, sizeof c.job);
    converse(&client, &c, &server, &s, 64);
    assert_int_equal(server.refusal, TT__REFUSED_JOB);
}

typedef struct refused {
    const char *what;
    tt__handshake_role client, server;
    tt__refusal why;
    tt_status status;
    const char *text; /* part of the client's error */
} refused;

static void others_are_refused(void **state) {
    (void)state;
    const tt__handshake_role c = role_of(false, &ours), s = role_of(true, &ours);
    refused cases[] = {
        {"another secret", c, s, TT__REFUSED_PROOF, TT_ERR_AUTH, "another job secret"},
        {"a client without a secret", c, s, TT__REFUSED_NO_PROOF, TT_ERR_AUTH, "this process has none"},
        {"a server without a secret", c, s, TT__REFUSED_NO_SECRET, TT_ERR_AUTH, "the other side has none"},
        {"another purpose", c, s, TT__REFUSED_PURPOSE, TT_ERR_AUTH, "port"},
        {"another job", c, s, TT__REFUSED_JOB, TT_ERR_AUTH, "another job"},
        {"another server than wanted", c, s, TT__REFUSED_RANK, TT_ERR_AUTH, "not the rank"},
        {"another client than expected", c, s, TT__REFUSED_RANK, TT_ERR_AUTH, "not the rank"},
        {"another channel", c, s, TT__REFUSED_PROOF, TT_ERR_AUTH, "another job secret"},
        {"another job, nobody with a secret", c, s, TT__REFUSED_JOB, TT_ERR_AUTH, "another job"},
        {"no job", c, s, TT__REFUSED_JOB, TT_ERR_AUTH, "another job"},
    };
    cases[0].client.secret = &theirs;
    cases[1].client.secret = NULL;
    cases[2].server.secret = NULL;
    cases[3].client.purpose = TT__PURPOSE_STORE;
    cases[4].client.job[0] ^= 1;
    cases[5].server.rank = 1;
    cases[6].server.peer = 2;
    cases[7].client.channel[0] = 1;
    cases[8].client.secret = cases[8].server.secret = NULL;
    cases[8].client.job[15] ^= 1;
    memset(cases[9].client.job, 0, sizeof cases[9].client.job);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__handshake client, server;
        converse(&client, &cases[i].client, &server, &cases[i].server, 64);
        if (server.state != TT__HANDSHAKE_FAILED || client.state != TT__HANDSHAKE_FAILED)
            fail_msg("%s was let in", cases[i].what);
        assert_int_equal(server.refusal, cases[i].why);
        assert_int_equal(client.refusal, cases[i].why);
        assert_int_equal(tt__handshake_error(&client), cases[i].status);
        if (!strstr(tt_last_error(), cases[i].text))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].what, tt_last_error(), cases[i].text);
        assert_true(*tt__handshake_reason(&server));
    }
}

/* A fake server that follows the client's every word, but has no secret to prove with. */
static void a_false_server_is_refused(void **state) {
    (void)state;
    tt__handshake client, server;
    tt__handshake_role c = role_of(false, &ours), s = role_of(true, &ours);
    assert_int_equal(tt__handshake_begin(&client, &c), TT_OK);
    assert_int_equal(tt__handshake_begin(&server, &s), TT_OK);
    carry(&client, &server, 64);
    carry(&server, &client, 64);
    uint8_t accept[36] = {TT__HANDSHAKE_FIRST_BYTE, TT__HANDSHAKE_VERSION, 4};
    memcpy(accept + 4, client.out + 4, 32); /* the client's own proof, reflected */
    tt__handshake_sent(&client, client.out_size);
    assert_int_equal(tt__handshake_feed(&client, accept, sizeof accept), sizeof accept);
    assert_int_equal(client.state, TT__HANDSHAKE_FAILED);
    assert_int_equal(client.refusal, TT__REFUSED_PROOF);
}

/* Replay a client's messages on a new connection: the server's random bytes differ. */
static void a_replay_is_refused(void **state) {
    (void)state;
    tt__handshake client, server;
    tt__handshake_role c = role_of(false, &ours), s = role_of(true, &ours);
    uint8_t hello[64], proof[64];
    assert_int_equal(tt__handshake_begin(&client, &c), TT_OK);
    assert_int_equal(tt__handshake_begin(&server, &s), TT_OK);
    memcpy(hello, client.out, client.out_size);
    carry(&client, &server, 64);
    carry(&server, &client, 64);
    size_t size = client.out_size;
    memcpy(proof, client.out, size);
    carry(&client, &server, 64);
    assert_int_equal(server.state, TT__HANDSHAKE_DONE);

    assert_int_equal(tt__handshake_begin(&server, &s), TT_OK);
    tt__handshake_feed(&server, hello, sizeof hello);
    assert_int_equal(server.out_size, 64);
    tt__handshake_sent(&server, 64);
    tt__handshake_feed(&server, proof, size);
    assert_int_equal(server.state, TT__HANDSHAKE_FAILED);
    assert_int_equal(server.refusal, TT__REFUSED_PROOF);
}

static void every_changed_bit_is_noticed(void **state) {
    (void)state;
    tt__handshake_role c = role_of(false, &ours), s = role_of(true, &ours);
    for (int message = 0; message < 4; message++)
        for (size_t bit = 0; bit < 64 * 8; bit++) {
            tt__handshake client, server;
            assert_int_equal(tt__handshake_begin(&client, &c), TT_OK);
            assert_int_equal(tt__handshake_begin(&server, &s), TT_OK);
            bool flipped = false;
            for (int i = 0; i < 4; i++) {
                tt__handshake *from = i % 2 ? &server : &client, *to = i % 2 ? &client : &server;
                if (i == message && bit < from->out_size * 8) {
                    from->out[bit / 8] ^= (uint8_t)(1 << bit % 8);
                    flipped = true;
                }
                carry(from, to, 64);
            }
            if (flipped && client.state == TT__HANDSHAKE_DONE)
                fail_msg("bit %zu of message %d can be changed", bit, message);
        }
}

static void strangers(void **state) {
    (void)state;
    const char *const said[] = {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "\xF5\x02", "\xF5\x01\x03", "\xF5\x01\x05\x01"};
    const tt__refusal why[] = {TT__REFUSED_STRANGER, TT__REFUSED_STRANGER, TT__REFUSED_VERSION, TT__REFUSED_BROKEN,
                               TT__REFUSED_BROKEN};
    tt__handshake_role s = role_of(true, &ours);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        tt__handshake server;
        assert_int_equal(tt__handshake_begin(&server, &s), TT_OK);
        tt__handshake_feed(&server, said[i], strlen(said[i]));
        assert_int_equal(server.state, TT__HANDSHAKE_FAILED);
        assert_int_equal(server.refusal, why[i]);
        assert_true(server.out_size == 0 || why[i] == TT__REFUSED_VERSION); /* nothing is said to a stranger */
        assert_int_equal(tt__handshake_error(&server), TT_ERR_PROTOCOL);
    }
}

/* ---- where the secret comes from ---- */

static char path[64];

static void write_file(const char *content, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
    assert_int_equal(chmod(path, mode), 0);
}

static void expect(tt_status expected, const char *part) {
    tt__secret secret;
    assert_int_equal(tt__secret_load(&secret), expected);
    if (part && !strstr(tt_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tt_last_error(), part);
}

static void secrets_come_from_the_environment(void **state) {
    (void)state;
    tt__secret secret, from_file;
    snprintf(path, sizeof path, "/tmp/test_handshake.%d", (int)getpid());
    unsetenv("TT_SECRET");
    unsetenv("TT_SECRET_FILE");
    unsetenv("TT_SECRET_FD");
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    assert_false(secret.set);
    setenv("TT_SECRET", "short", 1);
    expect(TT_ERR_INVALID, "openssl rand");
    setenv("TT_SECRET", job_secret, 1);
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    assert_true(secret.set);
    assert_memory_equal(&secret, &ours, sizeof secret);
    assert_memory_not_equal(secret.handshake_key, secret.tls_key, TT__MAC_SIZE);
    unsetenv("TT_SECRET");

    setenv("TT_SECRET_FILE", path, 1);
    expect(TT_ERR_IO, path);
    write_file("an old and well kept secret\n", 0600);
    assert_int_equal(tt__secret_load(&from_file), TT_OK);
    assert_memory_equal(&from_file, &secret, sizeof secret);
    write_file("an old and well kept secret\n", 0640);
    expect(TT_ERR_IO, "chmod 600");
    write_file("short\n", 0600);
    expect(TT_ERR_INVALID, path);
    setenv("TT_SECRET_FILE", "/tmp", 1);
    expect(TT_ERR_IO, "regular file");
    unlink(path);
    unsetenv("TT_SECRET_FILE");
    tt__secret_wipe(&secret);
    assert_false(secret.set);
}

/* Load the secret from descriptor `fd`. */
static void expect_of(int fd, tt_status expected, const char *part) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    setenv("TT_SECRET_FD", number, 1);
    expect(expected, part);
    unsetenv("TT_SECRET_FD");
}

/* Make a memfd with this content and these seals. */
static int sealed_file(const char *content, size_t size, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), (ssize_t)size);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void secrets_are_inherited_in_memory(void **state) {
    (void)state;
    enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
    char number[16], text[8];
    int fd = -1, ends[2];
    tt__secret secret;
    assert_int_equal(tt__secret_memory_make(&fd, job_secret), TT_OK);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC); /* until a rank is started */
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    snprintf(number, sizeof number, "%d", fd);
    setenv("TT_SECRET_FD", number, 1);
    for (int i = 0; i < 2; i++) { /* whatever was read before */
        assert_int_equal(tt__secret_load(&secret), TT_OK);
        assert_memory_equal(&secret, &ours, sizeof secret);
        assert_true(read(fd, text, sizeof text) >= 0);
    }
    setenv("TT_SECRET", "set by hand, it counts", 1);
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    assert_memory_not_equal(&secret, &ours, sizeof secret);
    unsetenv("TT_SECRET");
    close(fd);
    expect(TT_ERR_IO, "has closed the descriptor");
    expect_of(-1, TT_ERR_INVALID, "TT_SECRET_FD: expected a number");
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    expect_of(ends[0], TT_ERR_IO, "is another file");
    close(ends[0]);
    close(ends[1]);
    static const struct {
        const char *content;
        size_t size;
        int seals;
        const char *part;
    } cases[] = {{job_secret, sizeof job_secret - 1, SEALS & ~F_SEAL_WRITE, "is another file"},
                 {job_secret, sizeof job_secret - 1, SEALS & ~F_SEAL_SEAL, "is another file"},
                 {job_secret, 15, SEALS, "16 to 1024 bytes of text, the job secret, but"},
                 {job_secret, 0, SEALS, "(0 bytes)"},
                 {"0123456789abcdef\0x", 18, SEALS, "(18 bytes)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fd = sealed_file(cases[i].content, cases[i].size, cases[i].seals);
        expect_of(fd, TT_ERR_IO, cases[i].part);
        close(fd);
    }
}

static void secrets_are_made(void **state) {
    (void)state;
    char a[TT__SECRET_MADE_SIZE], b[TT__SECRET_MADE_SIZE];
    assert_int_equal(tt__secret_make(a), TT_OK);
    assert_int_equal(tt__secret_make(b), TT_OK);
    assert_int_equal(strlen(a), 64);
    assert_int_equal(strspn(a, "0123456789abcdef"), 64);
    assert_string_not_equal(a, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(macs),
        cmocka_unit_test(derived_keys),
        cmocka_unit_test(both_are_let_in),
        cmocka_unit_test(a_stores_client_learns_its_job),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(a_false_server_is_refused),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(every_changed_bit_is_noticed),
        cmocka_unit_test(strangers),
        cmocka_unit_test(secrets_come_from_the_environment),
        cmocka_unit_test(secrets_are_inherited_in_memory),
        cmocka_unit_test(secrets_are_made),
    };
    return cmocka_run_group_tests(tests, derive, NULL);
}
