#ifdef TT__RAFT
#include "store/replica_io.h"

#include "base/clock.h"
#include "net/secret.h"

#include <stdlib.h>
#include <string.h>

/* Something that libraft is to be told of. One of the requests is set. */
typedef struct tt__replica_done {
    struct tt__replica_done *next;
    struct raft_io_append *append;
    struct raft_io_send *send;
    struct raft_io_snapshot_put *put;
    struct raft_io_snapshot_get *get;
    struct raft_snapshot *snapshot; /* for `get` */
    int status;
} done_request;

static tt__replica_io *io_of(struct raft_io *io) { return io->impl; }

static struct raft_snapshot *copy_snapshot(const tt__raft *raft, const struct raft_snapshot *from) {
    struct raft_snapshot *s = raft->raft_malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (struct raft_snapshot){
        .index = from->index, .term = from->term, .configuration_index = from->configuration_index, .n_bufs = 1};
    raft->raft_configuration_init(&s->configuration);
    bool good = true;
    size_t size = 0;
    for (unsigned i = 0; i < from->configuration.n && good; i++) {
        const struct raft_server *server = &from->configuration.servers[i];
        good = !raft->raft_configuration_add(&s->configuration, server->id, server->address, server->role);
    }
    for (unsigned i = 0; i < from->n_bufs; i++)
        size += from->bufs[i].len;
    s->bufs = raft->raft_malloc(sizeof *s->bufs);
    char *data = raft->raft_malloc(size ? size : 1);
    if (!good || !s->bufs || !data) {
        raft->raft_configuration_close(&s->configuration);
        raft->raft_free(s->bufs);
        raft->raft_free(data);
        raft->raft_free(s);
        return NULL;
    }
    s->bufs[0] = (struct raft_buffer){data, size};
    for (unsigned i = 0; i < from->n_bufs; data += from->bufs[i].len, i++)
        memcpy(data, from->bufs[i].base, from->bufs[i].len);
    return s;
}

static void free_snapshot(const tt__raft *raft, struct raft_snapshot *s) {
    if (!s)
        return;
    raft->raft_configuration_close(&s->configuration);
    raft->raft_free(s->bufs[0].base);
    raft->raft_free(s->bufs);
    raft->raft_free(s);
}

/* ---- callbacks, later */

static void call_back(tt__replica_io *io, done_request *d) {
    if (d->append) {
        d->append->cb(d->append, d->status);
    } else if (d->send && d->send->cb) {
        d->send->cb(d->send, d->status);
    } else if (d->put) {
        d->put->cb(d->put, d->status);
    } else if (d->get) {
        if (d->status)
            free_snapshot(io->raft, d->snapshot);
        d->get->cb(d->get, d->status ? NULL : d->snapshot, d->status);
    }
    free(d);
}

static done_request *next_done(tt__replica_io *io) {
    done_request *d = io->done;
    if (d)
        io->done = d->next;
    return d;
}

void tt__replica_io_settle(tt__replica_io *io) {
    for (done_request *d; (d = next_done(io));)
        call_back(io, d);
}

static void on_io_idle(uv_idle_t *idle) {
    tt__replica_io *io = idle->data;
    tt__replica_io_settle(io);
    uv_idle_stop(idle);
    io->moved(io->user);
}

static int note_done(struct raft_io *base, done_request what) {
    tt__replica_io *io = io_of(base);
    done_request *d = malloc(sizeof *d);
    if (!d)
        return RAFT_NOMEM;
    *d = what;
    if (io->done)
        io->last_done->next = d;
    else
        io->done = d;
    io->last_done = d;
    uv_idle_start(&io->idle, on_io_idle);
    return 0;
}

/* ---- libraft's table */

static int io_init(struct raft_io *base, raft_id id, const char *address) {
    (void)base, (void)id, (void)address;
    return 0;
}

static void io_close(struct raft_io *base, raft_io_close_cb closed) {
    tt__replica_io *io = io_of(base);
    uv_timer_stop(&io->tick);
    uv_idle_stop(&io->idle);
    for (done_request *d; (d = next_done(io));) {
        d->status = RAFT_CANCELED;
        call_back(io, d);
    }
    closed(base);
}

static int io_load(struct raft_io *base, raft_term *term, raft_id *voted_for, struct raft_snapshot **snapshot,
                   raft_index *start_index, struct raft_entry *entries[], size_t *n_entries) {
    tt__replica_io *io = io_of(base);
    bool begins = io->first.base != NULL;
    *term = begins;
    *voted_for = 0;
    *snapshot = NULL;
    *start_index = 1;
    *entries = NULL;
    *n_entries = begins;
    if (!begins)
        return 0;
    struct raft_entry *entry = io->raft->raft_malloc(sizeof *entry);
    if (!entry)
        return RAFT_NOMEM;
    *entry = (struct raft_entry){.term = 1, .type = RAFT_CHANGE, .buf = io->first, .batch = io->first.base};
    io->first = (struct raft_buffer){0};
    *entries = entry;
    return 0;
}

static void on_io_tick(uv_timer_t *timer) {
    tt__replica_io *io = timer->data;
    tt__replica_io_settle(io); /* libraft drops what it has stored, once it is a candidate */
    io->ticked(&io->io);
    io->moved(io->user);
}

static int io_start(struct raft_io *base, unsigned ms, raft_io_tick_cb tick, raft_io_recv_cb receive) {
    tt__replica_io *io = io_of(base);
    io->ticked = tick;
    io->received = receive;
    return uv_timer_start(&io->tick, on_io_tick, ms, ms) ? RAFT_INVALID : 0;
}

static int io_bootstrap(struct raft_io *base, const struct raft_configuration *configuration) {
    tt__replica_io *io = io_of(base);
    return io->raft->raft_configuration_encode(configuration, &io->first);
}

static int io_recover(struct raft_io *base, const struct raft_configuration *configuration) {
    (void)base, (void)configuration;
    return RAFT_INVALID;
}

static int io_set_term(struct raft_io *base, raft_term term) {
    (void)base, (void)term;
    return 0;
}

static int io_set_vote(struct raft_io *base, raft_id server) {
    (void)base, (void)server;
    return 0;
}

static int io_send(struct raft_io *base, struct raft_io_send *send, const struct raft_message *message,
                   raft_io_send_cb sent) {
    tt__replica_io *io = io_of(base);
    send->cb = sent;
    return note_done(base, (done_request){.send = send, .status = io->send(io->user, message) ? 0 : RAFT_NOCONNECTION});
}

static int io_append(struct raft_io *base, struct raft_io_append *append, const struct raft_entry entries[], unsigned n,
                     raft_io_append_cb appended) {
    (void)entries, (void)n;
    append->cb = appended;
    return note_done(base, (done_request){.append = append});
}

static int io_truncate(struct raft_io *base, raft_index index) {
    (void)base, (void)index;
    return 0;
}

static int io_snapshot_put(struct raft_io *base, unsigned trailing, struct raft_io_snapshot_put *put,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb stored) {
    tt__replica_io *io = io_of(base);
    (void)trailing;
    struct raft_snapshot *copy = copy_snapshot(io->raft, snapshot);
    if (!copy)
        return RAFT_NOMEM;
    free_snapshot(io->raft, io->snapshot);
    io->snapshot = copy;
    put->cb = stored;
    return note_done(base, (done_request){.put = put});
}

static int io_snapshot_get(struct raft_io *base, struct raft_io_snapshot_get *get, raft_io_snapshot_get_cb got) {
    tt__replica_io *io = io_of(base);
    struct raft_snapshot *copy = io->snapshot ? copy_snapshot(io->raft, io->snapshot) : NULL;
    if (!copy)
        return io->snapshot ? RAFT_NOMEM : RAFT_NOTFOUND;
    get->cb = got;
    int failed = note_done(base, (done_request){.get = get, .snapshot = copy});
    if (failed)
        free_snapshot(io->raft, copy);
    return failed;
}

static raft_time io_time(struct raft_io *base) {
    (void)base;
    return (raft_time)tt__now_ms();
}

static int io_random(struct raft_io *base, int min, int max) {
    unsigned number = 0;
    (void)base;
    tt__random_bytes(&number, sizeof number);
    return max > min ? min + (int)(number % (unsigned)(max - min)) : min;
}

/* ---- */

void tt__replica_io_init(tt__replica_io *io, const tt__raft *raft, uv_loop_t *loop) {
    *io = (tt__replica_io){.raft = raft,
                           .io = {.version = 1,
                                  .impl = io,
                                  .init = io_init,
                                  .close = io_close,
                                  .load = io_load,
                                  .start = io_start,
                                  .bootstrap = io_bootstrap,
                                  .recover = io_recover,
                                  .set_term = io_set_term,
                                  .set_vote = io_set_vote,
                                  .send = io_send,
                                  .append = io_append,
                                  .truncate = io_truncate,
                                  .snapshot_put = io_snapshot_put,
                                  .snapshot_get = io_snapshot_get,
                                  .time = io_time,
                                  .random = io_random}};
    uv_timer_init(loop, &io->tick);
    uv_idle_init(loop, &io->idle);
    io->tick.data = io->idle.data = io;
}

void tt__replica_io_receive(tt__replica_io *io, struct raft_message *message) {
    tt__replica_io_settle(io);
    io->received(&io->io, message);
}

void tt__replica_io_free(tt__replica_io *io) {
    free_snapshot(io->raft, io->snapshot);
    io->snapshot = NULL;
    if (io->first.base)
        io->raft->raft_free(io->first.base);
    io->first = (struct raft_buffer){0};
}
#endif
typedef int tt__replica_io_is_optional; /* ISO C wants something in every file */
