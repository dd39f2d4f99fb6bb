#include "launch/adapters/remote_node.h"

#include "base/error.h"
#include "launch/adapters/far_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ORDER_WAIT_MS = 30000 };

/* What to run. The texts lie in `bytes`. */
typedef struct remote_order {
    char *bytes;
    char *directory, **argv, **environment;
} remote_order;

/* ---- reading */

/* Read exactly `size` bytes, each within ORDER_WAIT_MS. */
static tt_status read_order_bytes(int from, char *to, size_t size) {
    for (size_t done = 0; done < size;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int got = poll(&ready, 1, ORDER_WAIT_MS);
        ssize_t n = got > 0 ? read(from, to + done, size - done) : got;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return tt__fail(TT_ERR_PROTOCOL, "expected what to run from \"tutti run --ssh\", got %s",
                            got ? "the end of the input" : "nothing");
        done += (size_t)n;
    }
    return TT_OK;
}

static tt_status read_order_head(int from, size_t *size) {
    char head[TT__REMOTE_HEAD_SIZE] = "", version[TT__REMOTE_HEAD_SIZE];
    size_t n = 0;
    do
        TT__TRY(read_order_bytes(from, head + n, 1));
    while (head[n++] != '\n' && n < sizeof head - 1);
    if (sscanf(head, "tutti %s %zu", version, size) != 2 || *size < 3 || *size > TT__REMOTE_MAX_BYTES)
        return tt__fail(TT_ERR_PROTOCOL,
                        "this is what \"tutti run --ssh\" starts on other hosts, and nothing by itself");
    if (strcmp(version, tt_version()) != 0)
        return tt__fail(TT_ERR_PROTOCOL, "this host has tutti %s, the one that started the job %s: install the same",
                        tt_version(), version);
    return TT_OK;
}

/* Find the texts: `count` pointers and a NULL, from *at on. NULL: there are fewer, or there is no memory. */
static char **take_texts(char **at, const char *end, size_t count) {
    char **texts = calloc(count + 1, sizeof *texts);
    for (size_t i = 0; texts && i < count; i++) {
        if (*at >= end) {
            free(texts);
            return NULL;
        }
        texts[i] = *at;
        *at += strlen(*at) + 1;
    }
    return texts;
}

static size_t count_texts(const char *at, const char *end) {
    size_t n = 0;
    for (; at < end; at += strlen(at) + 1)
        n++;
    return n;
}

static tt_status read_remote_order(int from, remote_order *order) {
    size_t size;
    TT__TRY(read_order_head(from, &size));
    order->bytes = calloc(1, size + 1);
    if (!order->bytes)
        return tt__fail(TT_ERR_MEMORY, "no memory for what to run");
    TT__TRY(read_order_bytes(from, order->bytes, size));
    char *at = order->bytes, *end = at + size;
    *end = 0;
    if (end[-1])
        return tt__fail(TT_ERR_PROTOCOL, "what to run is cut off");
    order->directory = at;
    at += strlen(at) + 1;
    long words = at < end ? strtol(at, NULL, 10) : 0;
    at += at < end ? strlen(at) + 1 : 0;
    if (words < 1 || (size_t)words > count_texts(at, end))
        return tt__fail(TT_ERR_PROTOCOL, "what to run is not complete");
    order->argv = take_texts(&at, end, (size_t)words);
    order->environment = take_texts(&at, end, count_texts(at, end));
    return order->argv && order->environment ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for what to run");
}

/* ---- running */

/* Hand signals on until the process has ended. Whoever asked for them is gone when the input ends. */
static int attend_order(int from, pid_t pid, int process) {
    struct pollfd fds[] = {{.fd = process, .events = POLLIN}, {.fd = from, .events = POLLIN}};
    while (!(fds[0].revents & POLLIN)) {
        unsigned char sig;
        if (poll(fds, 2, -1) < 0 || !fds[1].revents)
            continue;
        ssize_t n = read(from, &sig, 1);
        if (n == 1 && sig > 0 && sig < NSIG)
            kill(pid, sig);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
            kill(pid, SIGTERM);
            fds[1].fd = -1;
        }
    }
    int status;
    return tt__far_process_wait(pid, &status);
}

static tt_status run_order(int from, const remote_order *order, int *exit_code) {
    if (chdir(order->directory))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't enter %s, where the job was started", order->directory);
    pid_t pid;
    sigset_t none;
    sigemptyset(&none);
    int errnum = tt__far_process_start(
        &pid, order->argv,
        &(tt__far_start){.environment = order->environment, .input = -1, .output = -1, .mask = &none});
    if (errnum)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't run %s", order->argv[0]);
    int process = tt__far_process_watch_or_kill(pid);
    if (process < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the launcher");
    *exit_code = attend_order(from, pid, process);
    close(process);
    return TT_OK;
}

int tt__remote_code(int exit_code) {
    return exit_code == 0 ? TT__REMOTE_DONE : exit_code >= TT__REMOTE_DONE ? TT__REMOTE_FAILED - 1 : exit_code;
}

tt_status tt__remote_node_run(int from, int *exit_code) {
    remote_order order = {0};
    tt_status status = read_remote_order(from, &order);
    if (!status)
        status = run_order(from, &order, exit_code);
    free(order.argv);
    free(order.environment);
    free(order.bytes);
    return status;
}
