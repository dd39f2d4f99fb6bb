/* Requests of a replica's clients. libraft calls back from its midst: what clients are told, and what they ask next,
 * waits until it has returned. */
#ifdef TT__RAFT
#include "store/replica_own.h"

#include "store/operations.h"
#include "store/replica_log.h"

#include <stdlib.h>
#include <string.h>

typedef struct tt__replica_pending {
    struct raft_apply apply;
    struct tt__replica_pending *next;
    tt__replica *replica;
    tt__store_session *session; /* NULL: gone */
    bool waits;                 /* it is a WAIT */
    tt__bytes request, answer;
} pending;

static void put_pending(tt__replica_queue *queue, pending *p) {
    p->next = NULL;
    if (queue->first)
        queue->last->next = p;
    else
        queue->first = p;
    queue->last = p;
}

static pending *take_pending(tt__replica_queue *queue) {
    pending *p = queue->first;
    if (p)
        queue->first = p->next;
    return p;
}

static pending *new_pending(tt__replica *r, tt__store_session *session, tt__span request) {
    pending *p = calloc(1, sizeof *p);
    if (p)
        tt__bytes_put(&p->request, request.data, request.size);
    if (!p || p->request.failed) {
        free(p);
        tt__store_session_break(session, TT__STORE_NO_MEMORY);
        return NULL;
    }
    p->replica = r;
    p->session = session;
    session->deferred = p;
    return p;
}

static void answer_not_leading(pending *p) {
    tt__bytes_clear(&p->answer, 0);
    tt__replica_put_answer(&p->answer, TT__STORE_NOT_LEADING, (tt__span){0});
    put_pending(&p->replica->answered, p);
}

/* ---- writes */

static void on_applied(struct raft_apply *apply, int status, void *result) {
    pending *p = apply->data;
    const tt__bytes *answer = result;
    if (status) {
        answer_not_leading(p);
        return;
    }
    tt__bytes_put(&p->answer, answer->data, answer->size);
    put_pending(&p->replica->answered, p);
}

static void propose(tt__replica *r, pending *p, uint64_t client, uint64_t number) {
    tt__bytes entry = {0};
    tt__replica_put_entry(&entry, client, number, (tt__span){p->request.data, p->request.size});
    struct raft_buffer buffer = {entry.failed ? NULL : r->lib->raft_malloc(entry.size), entry.size};
    p->apply.data = p;
    if (buffer.base)
        memcpy(buffer.base, entry.data, entry.size);
    tt__bytes_free(&entry);
    if (!buffer.base || r->lib->raft_apply(&r->raft, &p->apply, &buffer, 1, on_applied)) {
        r->lib->raft_free(buffer.base);
        answer_not_leading(p);
    }
}

/* May the store take that many bytes more? The one that leads says so for all. */
static bool fits_in(const tt__replica *r, size_t more, char why[TT__STORE_WHY_SIZE]) {
    size_t limit = r->all->service.limit / 4 * 3;
    limit = limit < TT__REPLICA_MAX_BYTES ? limit : TT__REPLICA_MAX_BYTES;
    size_t coming = r->started ? tt__replica_log_bytes(&r->raft.log, r->raft.last_applied) : 0;
    if (more > TT__REPLICA_MAX_REQUEST)
        snprintf(why, TT__STORE_WHY_SIZE, "a request of %zu bytes; a store of several replicas takes at most %zu", more,
                 TT__REPLICA_MAX_REQUEST);
    else if (r->all->service.table.bytes + r->state.recent.bytes + r->state.before.bytes + coming + more > limit)
        snprintf(why, TT__STORE_WHY_SIZE, "%zu bytes more don't fit: a store of several replicas holds %zu MiB", more,
                 limit >> 20);
    else
        return true;
    return false;
}

void tt__replica_do(tt__replica *r, tt__store_session *session, uint64_t client, uint64_t number, tt__span request) {
    char why[TT__STORE_WHY_SIZE];
    bool writes = false,
         good = tt__replica_request_good(request, &writes, why) && (!writes || fits_in(r, request.size, why));
    if (!good) {
        tt__replica_put_answer(&session->out, TT__STORE_REFUSED, (tt__span){(const uint8_t *)why, strlen(why)});
        return;
    }
    if (!r->leads || (writes && !number)) {
        tt__replica_put_answer(&session->out, TT__STORE_NOT_LEADING, (tt__span){0});
        return;
    }
    pending *p = new_pending(r, session, request);
    if (p && writes)
        propose(r, p, client, number);
    else if (p)
        put_pending(&r->next_reads, p);
}

/* ---- reads: a barrier, which the others confirm, for all that have come until it begins */

static void do_wait_now(pending *p) {
    tt__store_parser parser = {0};
    char why[TT__STORE_WHY_SIZE];
    if (tt__store_parse(&parser, TT_STORE_TORCH_2, p->request.data, p->request.size, why) == TT__STORE_WHOLE)
        tt__store_execute(p->session, &parser, p->request.data);
}

static void on_barrier(struct raft_barrier *barrier, int status) {
    tt__replica *r = barrier->data;
    r->barrier_runs = false;
    for (pending *p; (p = take_pending(&r->reads));) {
        if (status) {
            answer_not_leading(p);
            continue;
        }
        if (p->session && p->waits)
            do_wait_now(p);
        else if (p->session)
            tt__replica_read(&r->state, (tt__span){p->request.data, p->request.size}, &p->answer);
        put_pending(&r->answered, p);
    }
}

static void begin_reads(tt__replica *r) {
    if (r->barrier_runs || (!r->next_reads.first && !r->confirms))
        return;
    r->confirms = false;
    for (pending *p; (p = take_pending(&r->next_reads));)
        put_pending(&r->reads, p);
    r->barrier.data = r;
    r->barrier_runs = true;
    if (!r->leads || r->lib->raft_barrier(&r->raft, &r->barrier, on_barrier))
        on_barrier(&r->barrier, RAFT_NOTLEADER);
}

void tt__replica_wait(tt__replica *r, tt__store_session *session, tt__span request) {
    pending *p = new_pending(r, session, request);
    if (!p)
        return;
    p->waits = true;
    put_pending(&r->next_reads, p);
}

/* ---- */

void tt__replica_forget(tt__store_session *session) {
    pending *p = session->deferred;
    if (p)
        p->session = NULL;
}

static void send_away(tt__store_session *session) {
    session->moved = true;
    tt__store_session_break(session, "this replica of the store does not lead any more");
}

static void give_answer(pending *p) {
    tt__store_session *session = p->session;
    bool leads = !p->answer.size || p->answer.data[0] != TT__STORE_NOT_LEADING;
    if (session && p->waits && !leads)
        send_away(session);
    else if (session && p->answer.failed)
        tt__store_session_break(session, TT__STORE_NO_MEMORY);
    else if (session && !p->waits)
        tt__bytes_put(&session->out, p->answer.data, p->answer.size);
    tt__bytes_free(&p->request);
    tt__bytes_free(&p->answer);
    free(p);
    if (session)
        tt__store_session_go_on(session);
}

void tt__replica_go_on(tt__replica *r) {
    do {
        begin_reads(r);
        for (pending *p; (p = take_pending(&r->answered));)
            give_answer(p);
    } while (!r->barrier_runs && r->next_reads.first);
}

void tt__replica_send_away(tt__replica *r) {
    tt__list_node *sessions = &r->all->service.sessions;
    for (tt__list_node *node = sessions->next; node != sessions; node = node->next) {
        tt__store_session *s = (tt__store_session *)(void *)((char *)node - offsetof(tt__store_session, node));
        if (s->wait_count)
            send_away(s);
    }
}
#endif
typedef int tt__replica_requests_are_optional; /* ISO C wants something in every file */
