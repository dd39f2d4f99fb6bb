/* What a launcher reads of strangers and of Python workers: requests of health checks, and of torchrun's timers.
 *
 * Input: a mode byte, then
 *   even mode: the length of a first piece, and what a client of the health port sends, in two pieces. Something is
 *     answered if it is a request, or none; never anything that is no answer.
 *   odd mode: lines for the pipe of timers. At most one line's worth is kept, and whatever expires has a text. */
#include "launch/local/health.h"
#include "launch/local/worker_timers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool all_is_well(void *user, char body[TT__HEALTH_BODY]) {
    memcpy(body, "{}", 3);
    return user != NULL;
}

/* A listener in the abstract name space; *client is connected to it. */
static int listen_and_connect(int *client) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(sa_family_t); /* the kernel chooses a name */
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4))
        abort();
    length = sizeof address;
    *client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (getsockname(listener, (struct sockaddr *)&address, &length) || *client < 0 ||
        connect(*client, (struct sockaddr *)&address, length))
        abort();
    return listener;
}

static void send_piece(tt__health *health, int client, const uint8_t *data, size_t size) {
    if (size && send(client, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EPIPE && errno != EAGAIN)
        abort();
    tt__health_serve(health);
    tt__health_serve(health);
}

static void ask(const uint8_t *data, size_t size) {
    static int well;
    tt__health *health;
    char answer[8192];
    int client, listener = listen_and_connect(&client);
    if (tt__health_open(&health, listener, all_is_well, size % 2 ? &well : NULL))
        abort();
    size_t first = size ? data[0] : 0, rest = size ? size - 1 : 0;
    first = first < rest ? first : rest;
    send_piece(health, client, data + 1, first);
    send_piece(health, client, data + 1 + first, rest - first);
    ssize_t n = recv(client, answer, sizeof answer, MSG_DONTWAIT);
    if (n > 0 &&
        (n < 17 || memcmp(answer, "HTTP/1.0 ", 9) != 0 || (answer[9] != '2' && answer[9] != '4' && answer[9] != '5')))
        abort();
    tt__health_free(health);
    close(client);
}

static void write_lines(const uint8_t *data, size_t size) {
    enum { ROOM = 32 << 10 };
    static tt__file_timers timers;
    tt__expired expired;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        abort();
    timers = (tt__file_timers){.pipe = ends[0]};
    if (write(ends[1], data, size < ROOM ? size : ROOM) < 0 || write(ends[1], "\n", 1) < 0)
        abort();
    tt__file_timers_read(&timers);
    if (timers.used >= sizeof timers.line)
        abort();
    tt__file_timers_look_ms(&timers);
    while (tt__file_timers_expired(&timers, &expired))
        if (!strstr(expired.text, " has expired") || expired.pid <= 1 || expired.signal < 1)
            abort();
    tt__file_timers_close(&timers);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] % 2)
        write_lines(data + 1, size - 1);
    else if (size)
        ask(data + 1, size - 1);
    return 0;
}
