/* Streams over socket pairs, plain and encrypted: bytes arrive whole whatever the socket's size; strangers and wrong
 * secrets are refused. */
#include "support/patience.h"

#include "base/machine/clock.h"
#include "net/secure/seal.h"
#include "net/stream.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = 1 << 20 };

static const char job_secret[] = "an old and well kept secret";
static tt__secret ours, theirs;

typedef struct side {
    tt__stream stream;
    tt__handshake_role role;
    tt_status status;
    int peer;
    char text[512];
    pthread_t thread;
} side;

static tt__tls *tls_of(const tt__secret *secret) {
    tt__tls *tls;
    setenv("TT_TLS", "1", 1);
    assert_int_equal(tt__tls_load(&tls, secret), TT_OK);
    assert_non_null(tls);
    unsetenv("TT_TLS");
    return tls;
}

static void open_pair(side *client, tt__tls *client_tls, side *server, tt__tls *server_tls) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *client = (side){.role = {.purpose = TT__PURPOSE_TRANSPORT, .secret = &ours, .rank = 1, .peer = 0}};
    *server = (side){.role = {.server = true, .purpose = TT__PURPOSE_TRANSPORT, .secret = &ours, .peer = TT__ANY_RANK}};
    assert_int_equal(tt__stream_open(&client->stream, fds[0], client_tls, false), TT_OK);
    assert_int_equal(tt__stream_open(&server->stream, fds[1], server_tls, true), TT_OK);
}

static void close_pair(side *client, side *server) {
    tt__stream_close(&client->stream);
    tt__stream_close(&server->stream);
}

static void *greet(void *arg) {
    side *s = arg;
    s->status = tt__stream_handshake(&s->stream, &s->role, tt__deadline_ms(PATIENCE_MS), &s->peer, NULL);
    snprintf(s->text, sizeof s->text, "%s", tt_last_error());
    if (s->status)
        tt__stream_close(&s->stream);
    return NULL;
}

static void both_greet(side *client, side *server) {
    assert_int_equal(pthread_create(&server->thread, NULL, greet, server), 0);
    greet(client);
    pthread_join(server->thread, NULL);
}

static unsigned char sent[LARGE], received[LARGE];

/* In pieces of many sizes, some empty. */
static void *write_large(void *arg) {
    side *s = arg;
    for (size_t done = 0, put, i = 0; done < LARGE && !s->status; i++) {
        size_t a = i % 7 * 11, b = i % 5 * 9000, left = LARGE - done;
        a = a < left ? a : left;
        b = b < left - a ? b : left - a;
        struct iovec pieces[3] = {{sent + done, a}, {NULL, 0}, {sent + done + a, b}};
        tt__io io = a + b ? tt__stream_write(&s->stream, pieces, 3, &put) : TT__IO_DONE;
        while (io == TT__IO_WANT_WRITE)
            io = tt__stream_write(&s->stream, pieces, 3, &put);
        s->status = io == TT__IO_DONE ? TT_OK : TT_ERR_NET;
        done += a + b ? put : 0;
    }
    for (tt__io io = TT__IO_WANT_WRITE; io == TT__IO_WANT_WRITE && !s->status;)
        io = tt__stream_flush(&s->stream);
    assert_false(tt__stream_unsent(&s->stream));
    return NULL;
}

static void carries(tt__tls *client_tls, tt__tls *server_tls, tt__sealing sealing) {
    side client, server;
    open_pair(&client, client_tls, &server, server_tls);
    client.role.sealing = server.role.sealing = sealing;
    setsockopt(client.stream.fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
    uint8_t here[TT__MAC_SIZE], there[TT__MAC_SIZE], none[TT__MAC_SIZE] = {0};
    assert_int_equal(tt__stream_channel(&client.stream, here) == TT_OK, !client_tls); /* too early for TLS */
    both_greet(&client, &server);
    assert_int_equal(client.status, TT_OK);
    assert_int_equal(server.status, TT_OK);
    assert_int_equal(server.peer, 1);
    assert_int_equal(tt__stream_channel(&client.stream, here), TT_OK);
    assert_int_equal(tt__stream_channel(&server.stream, there), TT_OK);
    assert_memory_equal(here, there, sizeof here);
    assert_int_equal(memcmp(here, none, sizeof here) == 0, client_tls == NULL);

    for (size_t i = 0; i < LARGE; i++)
        sent[i] = (unsigned char)(i * 31 + i / 257);
    memset(received, 0, sizeof received);
    assert_int_equal(pthread_create(&client.thread, NULL, write_large, &client), 0);
    assert_int_equal(tt__stream_read_full(&server.stream, received, LARGE, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    pthread_join(client.thread, NULL);
    assert_memory_equal(sent, received, LARGE);

    size_t got = 1;
    assert_int_equal(tt__stream_write_full(&server.stream, "back", 4, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_int_equal(tt__stream_read_full(&client.stream, received, 4, tt__deadline_ms(PATIENCE_MS)), TT_OK);
    assert_memory_equal(received, "back", 4);
    assert_int_equal(tt__stream_read(&client.stream, received, 1, &got), TT__IO_WANT_READ);
    assert_int_equal(tt__stream_read_full(&client.stream, received, 1, tt__deadline_ms(20)), TT_ERR_TIMEOUT);
    tt__stream_close(&server.stream);
    assert_int_equal(tt__stream_read_some(&client.stream, received, 1, tt__deadline_ms(PATIENCE_MS), &got), TT_OK);
    assert_int_equal(got, 0);
    struct iovec piece = {sent, 10};
    assert_int_equal(tt__stream_write(&client.stream, &piece, 1, &got), TT__IO_FAILED); /* and no SIGPIPE */
    assert_int_equal(tt_last_status(), TT_ERR_NET);
    close_pair(&client, &server);
}

static void plain_streams(void **state) {
    (void)state;
    tt__tls *none;
    unsetenv("TT_TLS");
    assert_int_equal(tt__tls_load(&none, &ours), TT_OK);
    assert_null(none);
    carries(NULL, NULL, TT__SEALING_NONE);
}

static void encrypted_by_the_secret(void **state) {
    (void)state;
    tt__tls *a = tls_of(&ours), *b = tls_of(&ours);
    carries(a, b, TT__SEALING_NONE);
    tt__tls_free(a);
    tt__tls_free(b);
}

static void says(const side *s, tt_status status, const char *part) {
    assert_int_equal(s->status, status);
    if (!strstr(s->text, part))
        fail_msg("\"%s\" does not say \"%s\"", s->text, part);
}

static void another_secret_is_refused(void **state) {
    (void)state;
    tt__tls *a = tls_of(&ours), *b = tls_of(&theirs);
    side client, server;
    open_pair(&client, a, &server, b);
    both_greet(&client, &server);
    says(&client, TT_ERR_AUTH, "same TT_SECRET");
    says(&server, TT_ERR_AUTH, "TLS failed");
    close_pair(&client, &server);
    tt__tls_free(a);
    tt__tls_free(b);
    open_pair(&client, NULL, &server, NULL);
    client.role.secret = &theirs;
    both_greet(&client, &server);
    says(&client, TT_ERR_AUTH, "same TT_SECRET");
    says(&server, TT_ERR_AUTH, "another job secret");
    close_pair(&client, &server);
}

static void half_encrypted_is_refused(void **state) {
    (void)state;
    tt__tls *tls = tls_of(&ours);
    side client, server;
    open_pair(&client, tls, &server, NULL);
    both_greet(&client, &server);
    assert_int_equal(server.status, TT_ERR_PROTOCOL);
    says(&client, client.status == TT_ERR_NET ? TT_ERR_NET : TT_ERR_AUTH, "Both sides need TT_TLS=1");
    close_pair(&client, &server);
    open_pair(&client, NULL, &server, tls);
    both_greet(&client, &server);
    says(&server, TT_ERR_AUTH, "TLS failed");
    assert_int_not_equal(client.status, TT_OK);
    close_pair(&client, &server);
    tt__tls_free(tls);
}

/* A relay that has a connection to both: what one side proves on its connection is worth nothing on the other. */
static void a_proof_is_bound_to_its_connection(void **state) {
    (void)state;
    tt__tls *tls = tls_of(&ours);
    side client, relay_in, relay_out, server;
    open_pair(&client, tls, &relay_in, tls);
    open_pair(&relay_out, tls, &server, tls);
    assert_int_equal(pthread_create(&client.thread, NULL, greet, &client), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, greet, &server), 0);
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    uint8_t words[64];
    while (tt__stream_begin(&relay_in.stream) != TT__IO_DONE || tt__stream_begin(&relay_out.stream) != TT__IO_DONE)
        ;
    assert_int_equal(tt__stream_read_full(&relay_in.stream, words, 64, deadline), TT_OK);
    assert_int_equal(tt__stream_write_full(&relay_out.stream, words, 64, deadline), TT_OK);
    assert_int_equal(tt__stream_read_full(&relay_out.stream, words, 64, deadline), TT_OK);
    assert_int_equal(tt__stream_write_full(&relay_in.stream, words, 64, deadline), TT_OK);
    assert_int_equal(tt__stream_read_full(&relay_in.stream, words, 36, deadline), TT_OK);
    assert_int_equal(tt__stream_write_full(&relay_out.stream, words, 36, deadline), TT_OK);
    pthread_join(server.thread, NULL);
    says(&server, TT_ERR_AUTH, "another job secret");
    close_pair(&relay_in, &relay_out);
    pthread_join(client.thread, NULL);
    assert_int_not_equal(client.status, TT_OK);
    close_pair(&client, &server);
    tt__tls_free(tls);
}

static void a_silent_side_is_given_up(void **state) {
    (void)state;
    side client, server;
    tt__tls *tls = tls_of(&ours);
    for (int i = 0; i < 2; i++) {
        open_pair(&client, i ? tls : NULL, &server, NULL);
        assert_int_equal(tt__stream_handshake(&client.stream, &client.role, tt__deadline_ms(30), NULL, NULL),
                         TT_ERR_TIMEOUT);
        close_pair(&client, &server);
    }
    tt__tls_free(tls);
}

/* ---- certificates, made by OpenSSL's own command */

static char folder[64];

static int sh(const char *script) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (chdir(folder))
            _exit(127);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char make_certificates[] =
    "exec >log 2>&1; command -v openssl || exit 77; set -e\n"
    "new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'\n"
    "for ca in ca other; do openssl req -x509 $new -subj /CN=$ca -keyout $ca.key -out $ca.pem; done\n"
    "for who in ca:a:2 ca:b:2 other:c:2 ca:late:-1; do IFS=: read -r ca name days <<-.\n$who\n.\n"
    "  openssl req $new -subj /CN=$name -keyout $name.key -out $name.csr\n"
    "  openssl x509 -req -in $name.csr -CA $ca.pem -CAkey $ca.key -CAcreateserial -days $days -out $name.pem\n"
    "done\n";

static tt__tls *tls_with(const char *name) {
    char path[3][128];
    snprintf(path[0], sizeof path[0], "%s/%s.pem", folder, name);
    snprintf(path[1], sizeof path[1], "%s/%s.key", folder, name);
    snprintf(path[2], sizeof path[2], "%s/ca.pem", folder);
    setenv("TT_TLS_CERT", path[0], 1);
    setenv("TT_TLS_KEY", path[1], 1);
    setenv("TT_TLS_CA", path[2], 1);
    tt__tls *tls = tls_of(NULL);
    unsetenv("TT_TLS_CERT");
    unsetenv("TT_TLS_KEY");
    unsetenv("TT_TLS_CA");
    return tls;
}

static void encrypted_by_certificates(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_stream.XXXXXX");
    assert_non_null(mkdtemp(folder));
    int made = sh(make_certificates);
    if (made == 77) {
        rmdir(folder);
        print_message("there is no openssl command\n");
        skip();
    }
    assert_int_equal(made, 0);
    tt__tls *a = tls_with("a"), *b = tls_with("b"), *c = tls_with("c"), *late = tls_with("late");
    carries(a, b, TT__SEALING_NONE);
    side client, server;
    open_pair(&client, c, &server, a); /* of another CA */
    both_greet(&client, &server);
    assert_int_not_equal(client.status, TT_OK);
    says(&server, TT_ERR_AUTH, "certificate");
    close_pair(&client, &server);
    open_pair(&client, a, &server, c);
    both_greet(&client, &server);
    says(&client, TT_ERR_AUTH, "certificate");
    close_pair(&client, &server);
    open_pair(&client, late, &server, a);
    both_greet(&client, &server);
    says(&server, TT_ERR_AUTH, "certificate has expired");
    close_pair(&client, &server);
    open_pair(&client, a, &server, late);
    both_greet(&client, &server);
    says(&client, TT_ERR_AUTH, "certificate has expired");
    close_pair(&client, &server);
    tt__tls_free(late);
    tt__tls *by_secret = tls_of(&ours);
    open_pair(&client, by_secret, &server, a);
    both_greet(&client, &server);
    assert_int_not_equal(client.status, TT_OK);
    assert_int_equal(server.status, TT_ERR_AUTH);
    close_pair(&client, &server);
    tt__tls_free(a);
    tt__tls_free(b);
    tt__tls_free(c);
    tt__tls_free(by_secret);
    assert_int_equal(sh("rm -f ./*"), 0);
    rmdir(folder);
}

static void settings(void **state) {
    (void)state;
    tt__tls *tls;
    const tt__secret none = {0};
    setenv("TT_TLS", "1", 1);
    assert_int_equal(tt__tls_load(&tls, &none), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "TT_SECRET"));
    setenv("TT_TLS_CERT", "/nonexistent", 1);
    assert_int_equal(tt__tls_load(&tls, &ours), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "TT_TLS_KEY is not set"));
    setenv("TT_TLS_KEY", "/nonexistent", 1);
    setenv("TT_TLS_CA", "/nonexistent", 1);
    assert_int_equal(tt__tls_load(&tls, &ours), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "TT_TLS_CERT=/nonexistent"));
    unsetenv("TT_TLS_CERT");
    unsetenv("TT_TLS_KEY");
    unsetenv("TT_TLS_CA");
    setenv("TT_TLS", "yes", 1);
    assert_int_equal(tt__tls_load(&tls, &ours), TT_ERR_INVALID);
    unsetenv("TT_TLS");
    assert_null(tls);
    tt__tls_free(NULL);
    tt__stream_close(NULL);
    tt__stream closed = {.fd = -1};
    tt__stream_close(&closed);
}

static int derive(void **state) {
    (void)state;
    tt__secret_from(&ours, job_secret, strlen(job_secret));
    tt__secret_from(&theirs, "a new and equally kept one", 26);
    return 0;
}

/* ---- sealed streams */

static void sealed_streams_carry(void **state) {
    (void)state;
    carries(NULL, NULL, TT__SEALING_RECORDS);
}

static void both_must_seal(void **state) {
    (void)state;
    for (int who = 0; who < 2; who++) {
        side client, server;
        open_pair(&client, NULL, &server, NULL);
        (who ? &server : &client)->role.sealing = TT__SEALING_RECORDS;
        both_greet(&client, &server);
        assert_int_equal(client.status, TT_ERR_AUTH);
        assert_int_equal(server.status, TT_ERR_AUTH);
        assert_non_null(strstr(client.text, "TT_WIRE"));
        close_pair(&client, &server);
    }
}

enum { RECORDS = 6, WIRE_MAX = 400000 };
static const size_t record_sizes[RECORDS] = {48, TT__SEAL_PIECE, 1, TT__SEAL_PIECE, 20000, 56};

/* What a sealed stream puts on the wire, and where its records begin. */
typedef struct wire_bytes {
    size_t begins[RECORDS + 1], size;
    unsigned char *data;
} wire_bytes;

static const tt__seal_keys keys_here = {{1, 2, 3}, {4, 5, 6}}, keys_there = {{4, 5, 6}, {1, 2, 3}};

static void record_wire(wire_bytes *wire, uint64_t rekey_every) {
    tt__seal *seal;
    int fds[2];
    size_t put, at = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(tt__seal_new(&seal, &keys_here), TT_OK);
    tt__seal_rekey_every(seal, rekey_every);
    *wire = (wire_bytes){.data = malloc(WIRE_MAX)};
    for (int i = 0; i < RECORDS; i++) {
        const struct iovec piece = {sent + at, record_sizes[i]};
        wire->begins[i] = wire->size;
        assert_int_equal(tt__seal_write(seal, fds[0], &piece, 1, &put), TT__IO_DONE);
        assert_int_equal(put, record_sizes[i]);
        at += put;
        size_t all = wire->size + TT__SEAL_HEAD + record_sizes[i] + TT__SEAL_TAG;
        while (wire->size < all) {
            ssize_t n = read(fds[1], wire->data + wire->size, all - wire->size);
            assert_true(n > 0);
            wire->size += (size_t)n;
            assert_true(tt__seal_flush(seal, fds[0]) != TT__IO_FAILED);
        }
    }
    wire->begins[RECORDS] = wire->size;
    tt__seal_free(seal);
    close(fds[0]);
    close(fds[1]);
}

/* Feed bytes to a reader, in calls of `piece` bytes; returns how many it gives out, all of which must be right. *last:
 * how it ended. */
static size_t read_wire(const unsigned char *data, size_t size, size_t piece, uint64_t rekey_every, tt__io *last) {
    tt__seal *seal;
    int fds[2];
    size_t done = 0, fed = 0, got;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(tt__seal_new(&seal, &keys_there), TT_OK);
    tt__seal_rekey_every(seal, rekey_every);
    if (rekey_every % 2)
        tt__seal_borrow(seal); /* parts of records then wait in `received` */
    for (bool closed = false;;) {
        if (fed < size) {
            ssize_t n = send(fds[0], data + fed, size - fed, MSG_DONTWAIT | MSG_NOSIGNAL);
            fed += n > 0 ? (size_t)n : 0;
        } else if (!closed) {
            closed = !shutdown(fds[0], SHUT_WR);
        }
        *last = tt__seal_read(seal, fds[1], received + done, piece < LARGE - done ? piece : LARGE - done, &got);
        if (*last == TT__IO_END || *last == TT__IO_FAILED)
            break;
        done += got;
    }
    assert_memory_equal(received, sent, done);
    if (*last == TT__IO_FAILED) {
        assert_int_equal(tt_last_status(), TT_ERR_AUTH);
        assert_int_equal(tt__seal_read(seal, fds[1], received, 1, &got), TT__IO_FAILED); /* for good */
    }
    tt__seal_free(seal);
    close(fds[0]);
    close(fds[1]);
    return done;
}

/* Return how many bytes the records before `at` bring. */
static size_t bytes_before(const wire_bytes *wire, size_t at) {
    size_t bytes = 0;
    for (int i = 0; i < RECORDS && wire->begins[i + 1] <= at; i++)
        bytes += record_sizes[i];
    return bytes;
}

static void sealed_bytes_arrive_in_any_pieces(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 47, 4096, TT__SEAL_PIECE - 1, TT__SEAL_PIECE, LARGE};
    wire_bytes wire;
    tt__io last;
    for (uint64_t rekey = 1; rekey < 5; rekey++) {
        record_wire(&wire, rekey);
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            assert_int_equal(read_wire(wire.data, wire.size, pieces[i], rekey, &last), bytes_before(&wire, wire.size));
            assert_int_equal(last, TT__IO_END);
        }
        assert_int_equal(read_wire(wire.data, wire.size, LARGE, rekey + 1, &last),
                         bytes_before(&wire, wire.begins[rekey < RECORDS ? rekey : RECORDS]));
        assert_int_equal(last, TT__IO_FAILED); /* other keys from there on */
        free(wire.data);
    }
}

/* Whatever byte is changed, nothing of its record is given out, nor of those that follow. */
static void changed_bytes_are_refused(void **state) {
    (void)state;
    wire_bytes wire;
    tt__io last;
    record_wire(&wire, TT__SEAL_RECORDS);
    for (int i = 0; i < RECORDS; i++) {
        size_t from = wire.begins[i], to = wire.begins[i + 1];
        for (size_t k = from; k < to; k += k - from < 8 || to - k < 20 ? 1 : (to - from) / 7 + 1)
            for (int bit = 0; bit < 8; bit += 7) {
                size_t at = k < to ? k : to - 1;
                wire.data[at] ^= (unsigned char)(1 << bit);
                size_t got = read_wire(wire.data, wire.size, k % 2 ? LARGE : 1000, TT__SEAL_RECORDS, &last);
                assert_int_equal(got, bytes_before(&wire, from));
                /* A size that grew may wait for bytes that never come. */
                assert_true(last == TT__IO_FAILED || at - from < TT__SEAL_HEAD);
                wire.data[at] ^= (unsigned char)(1 << bit);
            }
        for (size_t k = to - 20; k < to; k++) {
            wire.data[k] ^= 1;
            assert_int_equal(read_wire(wire.data, wire.size, LARGE, TT__SEAL_RECORDS, &last),
                             bytes_before(&wire, from));
            assert_int_equal(last, TT__IO_FAILED);
            wire.data[k] ^= 1;
        }
    }
    free(wire.data);
}

/* Records that are whole, but not in their place. */
static void moved_records_are_refused(void **state) {
    (void)state;
    wire_bytes wire;
    tt__io last;
    record_wire(&wire, TT__SEAL_RECORDS);
    unsigned char *changed = malloc(2 * WIRE_MAX);
    for (int i = 0; i < RECORDS; i++) {
        size_t from = wire.begins[i], to = wire.begins[i + 1], good = bytes_before(&wire, from);
        memcpy(changed, wire.data, to); /* twice */
        memcpy(changed + to, wire.data + from, wire.size - from);
        assert_int_equal(read_wire(changed, wire.size + to - from, LARGE, TT__SEAL_RECORDS, &last),
                         good + record_sizes[i]);
        assert_int_equal(last, TT__IO_FAILED);
        if (i == RECORDS - 1)
            break;
        memcpy(changed, wire.data, from); /* left out */
        memcpy(changed + from, wire.data + to, wire.size - to);
        assert_int_equal(read_wire(changed, wire.size - (to - from), LARGE, TT__SEAL_RECORDS, &last), good);
        assert_int_equal(last, TT__IO_FAILED);
    }
    free(changed);
    free(wire.data);
}

/* The tag is what OpenSSL's own GMAC makes of size and bytes, with the record's number as the nonce. */
static void tags_are_gmac(void **state) {
    (void)state;
    wire_bytes wire;
    record_wire(&wire, TT__SEAL_RECORDS);
    EVP_MAC *gmac = EVP_MAC_fetch(NULL, "GMAC", NULL);
    assert_non_null(gmac);
    for (int i = 0; i < RECORDS; i++) {
        unsigned char nonce[12] = {0, 0, 0, 0, (unsigned char)i}, tag[TT__SEAL_TAG];
        char cipher[] = "AES-256-GCM";
        size_t size, signed_bytes = TT__SEAL_HEAD + record_sizes[i];
        OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
                               OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce, sizeof nonce),
                               OSSL_PARAM_construct_end()};
        EVP_MAC_CTX *context = EVP_MAC_CTX_new(gmac);
        assert_int_equal(EVP_MAC_init(context, keys_here.send, sizeof keys_here.send, params), 1);
        assert_int_equal(EVP_MAC_update(context, wire.data + wire.begins[i], signed_bytes), 1);
        assert_int_equal(EVP_MAC_final(context, tag, &size, sizeof tag), 1);
        assert_memory_equal(tag, wire.data + wire.begins[i] + signed_bytes, sizeof tag);
        EVP_MAC_CTX_free(context);
    }
    EVP_MAC_free(gmac);
    free(wire.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_streams_carry),
        cmocka_unit_test(both_must_seal),
        cmocka_unit_test(sealed_bytes_arrive_in_any_pieces),
        cmocka_unit_test(changed_bytes_are_refused),
        cmocka_unit_test(moved_records_are_refused),
        cmocka_unit_test(tags_are_gmac),
        cmocka_unit_test(plain_streams),
        cmocka_unit_test(encrypted_by_the_secret),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(half_encrypted_is_refused),
        cmocka_unit_test(a_proof_is_bound_to_its_connection),
        cmocka_unit_test(a_silent_side_is_given_up),
        cmocka_unit_test(encrypted_by_certificates),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, derive, NULL);
}
