/* A back end in one file: ranks of one host, joined by Unix sockets like a star. Rank 0, the hub, adds what comes from
 * the others and sends the sum to all. It has barriers and sums, no more; Tutti makes averages of them, and refuses the
 * rest by name.
 *
 * Not fast: rank 0 moves everything. It shows all that a back end has to do. See docs/backends.md. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4() */
#endif
#include <tutti/backend.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const tt_backend_host *host;

typedef struct engine {
    int rank, size;
    int *sockets;        /* hub: (size), of each other rank; else one, of the hub */
    struct request *now; /* under way; there is one at a time (.serial) */
} engine;

/* Every call is a sum of `bytes` bytes; a barrier is one of a single byte that nobody looks at.
 *
 *   others   send the buffer, then receive the sum
 *   hub      receive from 1, 2, ... and add; then send to 1, 2, ... */
typedef struct request {
    tt_dtype dtype;
    unsigned char *data; /* the caller's buffer, or `nothing` */
    size_t bytes, at;    /* at: how much of what goes on now is through */
    int peer;            /* hub: with whom */
    bool sending;
    unsigned char nothing;
    _Alignas(8) unsigned char from[]; /* hub: (bytes), what a rank sent */
} request;

/* ---- joining: the hub tells its address through the store */

static tt_status fail_errno(const char *what) { return host->fail(TT_ERR_NET, "star: %s: %s", what, strerror(errno)); }

static void close_engine(void *arg) {
    engine *e = arg;
    for (int r = 0; e->sockets && r < (e->rank ? 1 : e->size); r++)
        if (e->sockets[r] >= 0)
            close(e->sockets[r]);
    free(e->sockets);
    free(e->now);
    free(e);
}

/* An address without a name in the file system: the kernel picks one. */
static tt_status serve(engine *e, tt_store *store) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address.sun_family;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, e->size))
        return fail_errno("can't listen");
    size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    tt_status status = host->store_set(store, "hub", &address, size);
    for (int i = 1; i < e->size && !status; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), r = 0;
        if (fd < 0 || read(fd, &r, sizeof r) != sizeof r || r < 1 || r >= e->size)
            status = fail_errno("no rank has come");
        else
            e->sockets[r] = fd;
    }
    close(listener);
    return status;
}

static tt_status join_hub(engine *e, tt_store *store) {
    tt_store_value address;
    tt_status status = host->store_get(store, "hub", &address);
    if (status)
        return status;
    e->sockets[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (e->sockets[0] < 0 || connect(e->sockets[0], address.data, (socklen_t)address.size) ||
        write(e->sockets[0], &e->rank, sizeof e->rank) != sizeof e->rank)
        status = fail_errno("can't reach the hub; are all ranks on one host?");
    host->store_value_free(&address);
    return status;
}

static tt_status open_engine(void **out, const tt_backend_member *member) {
    engine *e = calloc(1, sizeof *e);
    if (!e || !(e->sockets = calloc((size_t)member->world_size, sizeof *e->sockets))) {
        free(e);
        return host->fail(TT_ERR_MEMORY, "star: no memory");
    }
    e->rank = member->rank;
    e->size = member->world_size;
    for (int r = 0; r < e->size; r++)
        e->sockets[r] = -1;
    tt_status status = e->size == 1 ? TT_OK : e->rank ? join_hub(e, member->store) : serve(e, member->store);
    if (status)
        close_engine(e);
    else
        *out = e;
    return status;
}

/* ---- calls */

static bool supports(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device) {
    (void)device; /* the host's: nothing else is in .devices */
    return op == TT_OP_BARRIER || (reduce_op == TT_SUM && (dtype == TT_F32 || dtype == TT_F64 || dtype == TT_I64));
}

static tt_status begin(void *arg, const tt_call *call, void **out) {
    engine *e = arg;
    size_t bytes = call->op == TT_OP_BARRIER ? 1 : (size_t)call->count * host->dtype_size(call->dtype);
    request *r = malloc(sizeof *r + (e->rank ? 0 : bytes));
    if (!r)
        return host->fail(TT_ERR_MEMORY, "star: no memory for %zu bytes", bytes);
    *r = (request){.dtype = call->dtype, .bytes = bytes, .peer = 1, .sending = e->rank != 0};
    r->data = call->op == TT_OP_BARRIER ? &r->nothing : call->recv;
    *out = e->now = r;
    return TT_OK;
}

static void add(request *r) {
    size_t n = r->bytes / host->dtype_size(r->dtype);
    for (size_t i = 0; i < n && r->data != &r->nothing; i++) {
        if (r->dtype == TT_F32)
            ((float *)(void *)r->data)[i] += ((const float *)(const void *)r->from)[i];
        else if (r->dtype == TT_F64)
            ((double *)(void *)r->data)[i] += ((const double *)(const void *)r->from)[i];
        else
            ((uint64_t *)(void *)r->data)[i] += ((const uint64_t *)(const void *)r->from)[i];
    }
}

/* Move what goes without waiting: *through, whether all of it has. */
static tt_status move(request *r, int fd, unsigned char *data, bool *through) {
    while (r->at < r->bytes) {
        ssize_t n = r->sending ? send(fd, data + r->at, r->bytes - r->at, MSG_DONTWAIT | MSG_NOSIGNAL)
                               : recv(fd, data + r->at, r->bytes - r->at, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0)
            return host->fail(TT_ERR_PEER, "star: a rank has ended");
        r->at += (size_t)n;
    }
    *through = r->at == r->bytes;
    if (*through)
        r->at = 0;
    return TT_OK;
}

static tt_status advance_leaf(const engine *e, request *r, bool *done) {
    bool through = false;
    tt_status status = move(r, e->sockets[0], r->data, &through);
    *done = through && !r->sending;
    if (through)
        r->sending = false;
    return status;
}

static tt_status advance_hub(const engine *e, request *r, bool *done) {
    bool through = true;
    while (through && r->peer < e->size) {
        tt_status status = move(r, e->sockets[r->peer], r->sending ? r->data : r->from, &through);
        if (status)
            return status;
        if (through && !r->sending)
            add(r);
        if (through && ++r->peer == e->size && !r->sending) {
            r->sending = true;
            r->peer = 1;
        }
    }
    *done = r->peer >= e->size;
    return TT_OK;
}

static tt_status test(void *arg, void *request_arg, bool *done, int *source) {
    engine *e = arg;
    request *r = request_arg;
    (void)source;
    *done = false;
    tt_status status = e->rank ? advance_leaf(e, r, done) : advance_hub(e, r, done);
    if (*done || status) {
        e->now = NULL;
        free(r);
    }
    return status;
}

const tt_backend *tutti_backend(const tt_backend_host *offered) {
    static const tt_backend star = {
        .abi = TT_BACKEND_ABI,
        .size = sizeof(tt_backend),
        .name = "star",
        .open = open_engine,
        .close = close_engine,
        .begin = {[TT_OP_BARRIER] = begin, [TT_OP_ALL_REDUCE] = begin},
        .test = test,
        .supports = supports,
        .serial = true, /* one stream a rank: calls can't overtake each other on it */
    };
    host = offered;
    return &star;
}
