#include "support/stream_backend.h"

#include <tutti/backend.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* star.c's, under another name. */
const tt_backend *star_backend(const tt_backend_host *offered);

static const tt_backend_host *host;
static const tt_backend *star;

/* ---- memory: one file, mapped where the host may not look, and once more for the device */

enum { MEMORY = 1 << 24 };
static struct {
    unsigned char *addresses, *bytes;
    size_t used;
} memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static seen_call last;

static void map_memory(void) {
    int fd = memfd_create("stream", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, MEMORY))
        abort();
    memory.addresses = mmap(NULL, MEMORY, PROT_NONE, MAP_SHARED, fd, 0);
    memory.bytes = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void *device_alloc(size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, map_memory);
    pthread_mutex_lock(&lock);
    void *at = memory.addresses + memory.used;
    memory.used += (bytes + 63) / 64 * 64;
    pthread_mutex_unlock(&lock);
    return at;
}

/* Where the device finds what the host knows by this address. */
static void *on_device(const void *address) {
    return memory.bytes + ((const unsigned char *)address - memory.addresses);
}

static void to_device(void *to, const void *from, size_t bytes) { memcpy(on_device(to), from, bytes); }
static void to_host(void *to, const void *from, size_t bytes) { memcpy(to, on_device(from), bytes); }

/* ---- streams */

typedef struct job {
    struct job *next;
    void (*fn)(void *arg);
    void *arg;
} job;

struct lane {
    pthread_t thread;
    job *first;
    bool busy;
};

static void *lane_run(void *arg) {
    lane *l = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!l->first)
            pthread_cond_wait(&changed, &lock);
        job *now = l->first;
        l->first = now->next;
        l->busy = true;
        pthread_mutex_unlock(&lock);
        now->fn(now->arg);
        free(now);
        pthread_mutex_lock(&lock);
        l->busy = false;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static lane *lane_new(void) {
    lane *l = calloc(1, sizeof *l);
    if (!l || pthread_create(&l->thread, NULL, lane_run, l))
        abort();
    return l;
}

static void put(lane *l, void (*fn)(void *arg), void *arg) {
    job *new = calloc(1, sizeof *new), **at = &l->first;
    *new = (job){.fn = fn, .arg = arg};
    pthread_mutex_lock(&lock);
    while (*at)
        at = &(*at)->next;
    *at = new;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_empty(lane *l) {
    pthread_mutex_lock(&lock);
    bool empty = !l->first && !l->busy;
    pthread_mutex_unlock(&lock);
    return empty;
}

/* The default stream of a device. */
static lane *lane_of(void *stream) {
    static lane *standard;
    if (stream)
        return stream;
    pthread_mutex_lock(&lock);
    if (!standard)
        standard = lane_new();
    pthread_mutex_unlock(&lock);
    return standard;
}

/* ---- events */

typedef struct event {
    struct event *next; /* among marks whose call is not begun */
    int holders;
    bool happened, given_up;
} event;

static void event_set(event *e, bool given_up) {
    pthread_mutex_lock(&lock);
    e->happened = true;
    e->given_up = given_up;
    bool last_holder = --e->holders == 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (last_holder)
        free(e);
}

static void event_happens(void *arg) { event_set(arg, false); }

static event *event_hold(event *e) {
    pthread_mutex_lock(&lock);
    e->holders++;
    pthread_mutex_unlock(&lock);
    return e;
}

static void event_let_go(event *e) {
    pthread_mutex_lock(&lock);
    bool last_holder = --e->holders == 0;
    pthread_mutex_unlock(&lock);
    if (last_holder)
        free(e);
}

static void event_await(void *arg) {
    event *e = arg;
    pthread_mutex_lock(&lock);
    while (!e->happened)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    event_let_go(e);
}

/* ---- the engine: a thread that does one request after the other */

typedef struct request {
    struct request *next, *next_alive;
    tt_call call;
    event *mark, *result; /* of a call on the device: what it runs behind, and what runs behind it */
    bool done;
    tt_status status;
} request;

typedef struct engine {
    void *star;
    pthread_t thread;
    request *first; /* to do */
    request *alive; /* not yet told that they are done */
    event *marks;   /* of calls that are not begun */
    bool closing;
} engine;

static bool is_closing(engine *e) {
    pthread_mutex_lock(&lock);
    bool closing = e->closing;
    pthread_mutex_unlock(&lock);
    return closing;
}

static tt_status run_star(engine *e, const tt_call *call) {
    void *asked;
    bool done = false;
    int source;
    tt_status status = star->begin[call->op](e->star, call, &asked);
    while (!status && !done && !is_closing(e)) {
        status = star->test(e->star, asked, &done, &source);
        if (!done)
            sched_yield();
    }
    return status || done ? status : TT_ERR_ABORTED;
}

static tt_status run_on_device(engine *e, const request *r) {
    size_t bytes = (size_t)r->call.count * host->dtype_size(r->call.dtype);
    tt_call call = r->call;
    void *copy = malloc(bytes + 1);
    pthread_mutex_lock(&lock);
    while (!r->mark->happened && !e->closing)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (bytes)
        to_host(copy, r->call.send, bytes);
    call.send = call.recv = copy;
    tt_status status = run_star(e, &call);
    if (!status && bytes)
        to_device(r->call.recv, copy, bytes);
    free(copy);
    return status;
}

static void *engine_run(void *arg) {
    engine *e = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!e->first && !e->closing)
            pthread_cond_wait(&changed, &lock);
        request *r = e->first;
        if (e->closing || !r)
            break;
        e->first = r->next;
        pthread_mutex_unlock(&lock);
        tt_status status = r->mark ? run_on_device(e, r) : run_star(e, &r->call);
        if (r->mark) {
            event_let_go(r->mark);
            event_set(r->result, status != TT_OK);
        }
        pthread_mutex_lock(&lock);
        r->status = status;
        r->done = true;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void request_free(request *r) {
    if (r->result)
        event_let_go(r->result);
    free(r);
}

static tt_status stream_open(void **out, const tt_backend_member *member) {
    engine *e = calloc(1, sizeof *e);
    tt_status status = star->open(&e->star, member);
    if (status) {
        free(e);
        return status;
    }
    if (pthread_create(&e->thread, NULL, engine_run, e))
        abort();
    *out = e;
    return TT_OK;
}

static void stream_close(void *arg) {
    engine *e = arg;
    pthread_mutex_lock(&lock);
    e->closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(e->thread, NULL);
    while (e->alive) {
        request *r = e->alive;
        e->alive = r->next_alive;
        if (!r->done && r->mark) { /* it was never begun */
            event_let_go(r->mark);
            event_set(r->result, true);
        }
        request_free(r);
    }
    while (e->marks) {
        event *mark = e->marks;
        e->marks = mark->next;
        event_let_go(mark);
    }
    star->close(e->star);
    free(e);
}

static tt_status stream_mark(void *arg, const tt_call *call, void **mark) {
    event *e = calloc(1, sizeof *e);
    engine *of = arg;
    e->holders = 2;
    pthread_mutex_lock(&lock);
    e->next = of->marks;
    of->marks = e;
    pthread_mutex_unlock(&lock);
    put(lane_of(call->stream), event_happens, e);
    *mark = e;
    return TT_OK;
}

static tt_status stream_begin(void *arg, const tt_call *call, void **out) {
    engine *e = arg;
    request *r = calloc(1, sizeof *r), **at = &e->first;
    *r = (request){.call = *call, .mark = call->mark};
    if (r->mark) {
        r->result = calloc(1, sizeof *r->result);
        r->result->holders = 2; /* the engine's thread, and the request */
    }
    pthread_mutex_lock(&lock);
    for (event **mark = &e->marks; *mark; mark = &(*mark)->next)
        if (*mark == r->mark) {
            *mark = r->mark->next;
            break;
        }
    last = (seen_call){(int)call->op, (int)call->device, call->device_index, last.calls + 1, call->stream, call->send};
    while (*at)
        at = &(*at)->next;
    *at = r;
    r->next_alive = e->alive;
    e->alive = r;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    *out = r;
    return TT_OK;
}

static tt_status stream_test(void *arg, void *request_arg, bool *done, int *source) {
    engine *e = arg;
    request *r = request_arg, **at = &e->alive;
    (void)source;
    pthread_mutex_lock(&lock);
    *done = r->done;
    tt_status status = r->done ? r->status : TT_OK;
    while (*at != r)
        at = &(*at)->next_alive;
    if (*done)
        *at = r->next_alive;
    pthread_mutex_unlock(&lock);
    if (!*done)
        return TT_OK;
    request_free(r);
    return status ? host->fail(status, "stream: the call failed") : TT_OK;
}

static tt_status stream_wait(void *arg, void *request_arg, void *stream, bool *enqueued) {
    request *r = request_arg;
    (void)arg;
    put(lane_of(stream), event_await, event_hold(r->result));
    *enqueued = true;
    return TT_OK;
}

static bool supports(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, tt_device_type device) {
    (void)device;
    return star->supports(op, dtype, reduce_op, TT_DEVICE_CPU);
}

static seen_call seen(void) {
    pthread_mutex_lock(&lock);
    seen_call copy = last;
    pthread_mutex_unlock(&lock);
    return copy;
}

__attribute__((visibility("default"))) stream_device_fn stream_device_functions;
const stream_device *stream_device_functions(void) {
    static const stream_device device = {device_alloc, to_device, to_host, lane_new, put, is_empty, seen};
    return &device;
}

const tt_backend *tutti_backend(const tt_backend_host *offered) {
    static tt_backend table = {
        .abi = TT_BACKEND_ABI,
        .size = sizeof(tt_backend),
        .name = "stream",
        .open = stream_open,
        .close = stream_close,
        .begin = {[TT_OP_BARRIER] = stream_begin, [TT_OP_ALL_REDUCE] = stream_begin},
        .test = stream_test,
        .supports = supports,
        .stream_mark = stream_mark,
        .stream_wait = stream_wait,
    };
    table.devices = TT_DEVICE_BIT(TT_DEVICE_CUDA) | (getenv("STREAM_ONLY") ? 0 : TT_DEVICE_BIT(TT_DEVICE_CPU));
    host = offered;
    star = star_backend(offered);
    return &table;
}
