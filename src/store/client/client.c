#include "store/client/client.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "net/net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEEP_BUFFER = 64 * 1024,
    CANCEL_MS = 5000,     /* for the answer to CANCEL_WAIT, which a live server gives at once */
    INTERRUPTED_MS = 300, /* the same, in an interrupted thread, which must go on soon */
    RECONNECT_MS = 10,
    OLDER_MS = 2000, /* a server of PyTorch 1.13 answers within this time */
};

bool tt__store_client_is_open(const tt__store_client *client) { return client->stream.fd >= 0; }

void tt__store_client_close(tt__store_client *client) {
    tt__stream_close(&client->stream);
    client->in_start = client->in_end = 0;
    tt__bytes_free(&client->out);
}

/* Close the connection, which can't be used any more. */
static tt_status client_close_with(tt__store_client *client, tt_status status) {
    tt__store_client_close(client);
    return status;
}

tt_status tt__store_client_begin(tt__store_client *client, tt__store_op op) {
    const tt__store_op_info *info = &tt__store_op_table[op];
    if (!tt__store_client_is_open(client))
        return tt__fail(TT_ERR_STATE, "the connection was closed after an earlier error; make a new store");
    if (client->in_start < client->in_end)
        return client_close_with(client, tt__fail(TT_ERR_PROTOCOL, "the server sent bytes that nobody had asked for"));
    if (info->opcode[client->dialect] < 0)
        return tt__fail(TT_ERR_UNSUPPORTED, "PyTorch 1.13's store dialect has no %s", info->name);
    tt__bytes_clear(&client->out, KEEP_BUFFER);
    tt__store_put_u8(&client->out, (uint8_t)info->opcode[client->dialect]);
    return TT_OK;
}

tt_status tt__store_client_send(tt__store_client *client, int64_t deadline_ms) {
    if (client->out.failed)
        return tt__fail(TT_ERR_MEMORY, "out of memory for a request");
    tt_status status = tt__stream_write_full(&client->stream, client->out.data, client->out.size, deadline_ms);
    return status ? client_close_with(client, status) : TT_OK;
}

static tt_status client_read_some(tt__store_client *client, void *data, size_t size, int64_t deadline_ms, size_t *got) {
    tt_status status = tt__stream_read_some(&client->stream, data, size, deadline_ms, got);
    if (!status && !*got) {
        client->ended = true;
        status = tt__fail(TT_ERR_NET, "the server closed the connection");
    }
    return status;
}

/* Wait for bytes; a timeout leaves the connection as it is. */
static tt_status client_fill(tt__store_client *client, int64_t deadline_ms) {
    if (client->in_start < client->in_end)
        return TT_OK;
    size_t got = 0;
    TT__TRY(client_read_some(client, client->in, sizeof client->in, deadline_ms, &got));
    client->in_start = 0;
    client->in_end = got;
    return TT_OK;
}

tt_status tt__store_client_read(tt__store_client *client, void *data, size_t size, int64_t deadline_ms) {
    for (size_t done = 0, n; done < size; done += n) {
        if (client->in_start == client->in_end && size - done >= sizeof client->in) {
            tt_status status = client_read_some(client, (char *)data + done, size - done, deadline_ms, &n);
            if (status)
                return client_close_with(client, status);
            continue;
        }
        tt_status status = client_fill(client, deadline_ms);
        if (status)
            return client_close_with(client, status);
        n = client->in_end - client->in_start < size - done ? client->in_end - client->in_start : size - done;
        memcpy((char *)data + done, client->in + client->in_start, n);
        client->in_start += n;
    }
    return TT_OK;
}

tt_status tt__store_client_read_i64(tt__store_client *client, int64_t *value, int64_t deadline_ms) {
    uint8_t bytes[8];
    TT__TRY(tt__store_client_read(client, bytes, sizeof bytes, deadline_ms));
    *value = (int64_t)tt__store_number(bytes, sizeof bytes);
    return TT_OK;
}

tt_status tt__store_client_read_string(tt__store_client *client, tt_store_value *value, size_t max,
                                       int64_t deadline_ms) {
    int64_t size;
    TT__TRY(tt__store_client_read_i64(client, &size, deadline_ms));
    if (size < 0 || (uint64_t)size > max)
        return client_close_with(client, tt__fail(TT_ERR_PROTOCOL,
                                                  "expected at most %zu bytes, but the server announces %" PRIu64, max,
                                                  (uint64_t)size));
    char *data = malloc((size_t)size + 1);
    if (!data)
        return client_close_with(client,
                                 tt__fail(TT_ERR_MEMORY, "out of memory for a value of %" PRId64 " bytes", size));
    tt_status status = tt__store_client_read(client, data, (size_t)size, deadline_ms);
    if (status) {
        free(data);
        return status;
    }
    data[size] = '\0';
    *value = (tt_store_value){data, (size_t)size};
    return TT_OK;
}

static tt_status read_wait_byte(tt__store_client *client, int expected, int64_t deadline_ms) {
    uint8_t byte;
    TT__TRY(tt__store_client_read(client, &byte, 1, deadline_ms));
    if (byte != expected)
        return client_close_with(client,
                                 tt__fail(TT_ERR_PROTOCOL, "expected the byte %d as answer, got %d", expected, byte));
    return TT_OK;
}

/* Cancel a wait. The answer to the wait may cross the cancellation: then both answers come, and the wait has succeeded
 * after all. */
static tt_status cancel_wait(tt__store_client *client, bool *answered, int64_t deadline_ms) {
    TT__TRY(tt__store_client_begin(client, TT__STORE_CANCEL_WAIT));
    TT__TRY(tt__store_client_send(client, deadline_ms));
    uint8_t byte;
    TT__TRY(tt__store_client_read(client, &byte, 1, deadline_ms));
    *answered = byte == TT__STORE_STOP_WAITING;
    if (*answered)
        return read_wait_byte(client, TT__STORE_WAIT_CANCELED, deadline_ms);
    if (byte != TT__STORE_WAIT_CANCELED)
        return client_close_with(
            client, tt__fail(TT_ERR_PROTOCOL, "expected the byte %d as answer, got %d", TT__STORE_WAIT_CANCELED, byte));
    return TT_OK;
}

tt_status tt__store_client_read_stop_waiting(tt__store_client *client, int64_t deadline_ms) {
    tt_status status = client_fill(client, deadline_ms);
    if (!status)
        return read_wait_byte(client, TT__STORE_STOP_WAITING, deadline_ms);
    if ((status != TT_ERR_TIMEOUT && status != TT_ERR_ABORTED) || client->dialect == TT_STORE_TORCH_1_13)
        return client_close_with(client, status);
    bool answered = false, interrupted = status == TT_ERR_ABORTED;
    tt__saved_error why;
    tt__error_save(&why);
    tt__net_interrupt_suspend();
    tt_status cancelled = cancel_wait(client, &answered, tt__deadline_ms(interrupted ? INTERRUPTED_MS : CANCEL_MS));
    tt__net_interrupt_resume();
    if (answered || (cancelled && !interrupted))
        return cancelled;
    tt__error_restore(&why);
    return status;
}

/* Send VALIDATE and PING in one write: the libuv daemon of PyTorch drops a client whose VALIDATE comes in pieces. A
 * 1.13 server takes them for a SET whose key size is the magic number, PING and three bytes of the nonce. The nonce
 * sets the highest bit, so the server refuses the size instead of allocating. No byte of the nonce ends a line, as a
 * pid's may: a server of text would answer a line. */
static tt_status shake_hands(tt__store_client *client, int64_t deadline_ms) {
    uint32_t nonce = (uint32_t)getpid() | 0x80808080;
    TT__TRY(tt__store_client_begin(client, TT__STORE_VALIDATE));
    tt__store_put_u32(&client->out, TT__STORE_MAGIC);
    tt__store_put_u8(&client->out, (uint8_t)tt__store_op_table[TT__STORE_PING].opcode[TT_STORE_TORCH_2]);
    tt__store_put_u32(&client->out, nonce);
    TT__TRY(tt__store_client_send(client, deadline_ms));
    uint8_t echo[4];
    tt_status status = tt__store_client_read(client, echo, sizeof echo, deadline_ms);
    if (status == TT_ERR_TIMEOUT)
        return tt__fail(
            status, "no answer to the handshake. Is a TCPStore serving there? (PyTorch 1.x's needs the 1.13 dialect)");
    if (client->ended)
        return client_close_with(
            client,
            tt__fail(TT_ERR_PROTOCOL, "who listens there closed the connection: it is a store that serves no other "
                                      "machine, and no other user, without the job secret (give all processes of the "
                                      "job the same TT_SECRET_FILE, or TT_SECRET), or no TCPStore of PyTorch 2.x, or "
                                      "it has no more descriptors"));
    if (!status && tt__store_number(echo, 4) != nonce)
        return client_close_with(client, tt__fail(TT_ERR_PROTOCOL,
                                                  "who listens there is no TCPStore of PyTorch 2.x: it answered the "
                                                  "handshake with other bytes"));
    return status;
}

/* Is this a 1.13 server? The question that is sent changes nothing there. */
static tt_status ask_older(tt__store_client *client, int64_t deadline_ms) {
    int64_t count;
    TT__TRY(tt__store_client_begin(client, TT__STORE_NUM_KEYS));
    TT__TRY(tt__store_client_send(client, deadline_ms));
    return tt__store_client_read_i64(client, &count, deadline_ms);
}

/* Open a stream over a connected socket, prove the secret, and shake hands in the 2.x dialect. */
static tt_status begin_service(tt__store_client *client, int fd, const tt__store_access *access, int64_t deadline_ms) {
    client->ended = false;
    TT__TRY(tt__stream_open(&client->stream, fd, access->tls, false));
    if (access->tls || access->secret.set) {
        const tt__handshake_role role = {
            .purpose = TT__PURPOSE_STORE, .secret = &access->secret, .rank = TT__ANY_RANK, .peer = TT__ANY_RANK};
        tt_status status = tt__stream_handshake(&client->stream, &role, deadline_ms, NULL, client->life);
        if (status)
            return client_close_with(client, status);
    }
    return client->dialect == TT_STORE_TORCH_1_13 ? TT_OK : shake_hands(client, deadline_ms);
}

/* Connect once more and try the older dialect. If that fails, the error stays as it was. */
static bool open_older(tt__store_client *client, const char *host, int port, const tt__store_access *access,
                       int64_t deadline_ms) {
    int64_t limit_ms = tt__deadline_ms(OLDER_MS);
    tt__saved_error before;
    int fd;
    tt__error_save(&before);
    client->dialect = TT_STORE_TORCH_1_13;
    limit_ms = limit_ms < deadline_ms ? limit_ms : deadline_ms;
    if (!tt__net_connect(&fd, host, port, limit_ms) && !begin_service(client, fd, access, limit_ms) &&
        !ask_older(client, limit_ms)) {
        tt__error_restore(&before);
        tt__log(TT_LOG_INFO, "the store at %s:%d speaks the dialect of PyTorch 1.13", host, port);
        return true;
    }
    tt__store_client_close(client);
    client->dialect = TT_STORE_TORCH_2;
    tt__error_restore(&before);
    return false;
}

tt_status tt__store_client_open(tt__store_client *client, const char *host, int port, tt_store_dialect dialect,
                                const tt__store_access *access, int64_t deadline_ms) {
    bool any = dialect == TT_STORE_TORCH_ANY && !access->tls && !access->secret.set;
    client->stream.fd = -1;
    client->dialect = dialect == TT_STORE_TORCH_ANY ? TT_STORE_TORCH_2 : dialect;
    for (;;) {
        int fd;
        TT__TRY(tt__net_connect(&fd, host, port, deadline_ms));
        tt_status status = begin_service(client, fd, access, deadline_ms);
        if (!status || (any && status != TT_ERR_TIMEOUT && status != TT_ERR_ABORTED &&
                        open_older(client, host, port, access, deadline_ms)))
            return TT_OK;
        if (status != TT_ERR_NET || !tt__left_ms(deadline_ms))
            break;
        /* a reset: the server is just ending, its successor perhaps just starting */
        tt__sleep_ms(RECONNECT_MS);
    }
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(host, port, where);
    return tt__fail_prefix("store %s", where);
}
