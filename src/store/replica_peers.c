#include "store/replica_peers.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Nobody waits longer for a thread to end than it takes to find that nobody listens. */
enum {
    LISTENS_MS = 400,
    AGAIN_MS = 100,
    REFUSED_AGAIN_MS = 1000,
    OPEN_MS = 3000,
    ASK_EVERY_MS = 500,
    ANSWER_MS = 3000
};
enum { HELLO_MAX = 4096 };
#define QUEUE_MAX ((size_t)128 << 20)
#define PIECE ((size_t)256 << 10)

void tt__replica_peers_init(tt__replica_peers *peers) {
    pthread_mutex_init(&peers->lock, NULL);
    for (int i = 0; i < TT__REPLICAS_MAX; i++) {
        tt__replica_peer *p = &peers->peers[i];
        *p = (tt__replica_peer){.all = peers, .member = i, .fd = -1};
        tt__cond_init(&p->wake);
        snprintf(p->view.why, sizeof p->view.why, "not connected yet");
    }
}

static bool peer_stops(tt__replica_peer *p) {
    pthread_mutex_lock(&p->all->lock);
    bool stops = p->all->stop;
    pthread_mutex_unlock(&p->all->lock);
    return stops;
}

/* Say who this replica is (*as), and hear who the other is. */
static tt_status exchange_hellos(tt__replica_peer *p, tt__store_client *client, uint64_t *as,
                                 tt__replica_hello *hello) {
    tt__bytes own = {0};
    tt_store_value value = {0};
    pthread_mutex_lock(&p->all->lock);
    tt__replica_put_hello(&own, &p->all->own);
    *as = p->all->own.id;
    pthread_mutex_unlock(&p->all->lock);
    const int own_size = (int)p->all->own.list.size;
    const char *own_list = (const char *)p->all->own.list.data;
    int64_t deadline_ms = tt__deadline_ms(ANSWER_MS);
    tt_status status = tt__store_client_begin(client, TT__STORE_REPLICA_PEER);
    tt__store_put_string(&client->out, (tt__span){own.data, own.size});
    tt__bytes_free(&own);
    if (!status)
        status = tt__store_client_send(client, deadline_ms);
    if (!status)
        status = tt__store_client_read_string(client, &value, HELLO_MAX, deadline_ms);
    if (!status && !tt__replica_take_hello((tt__span){(const uint8_t *)value.data, value.size}, hello))
        status = tt__fail(TT_ERR_PROTOCOL, "who listens there is no replica of a store, or of another version");
    else if (!status && !tt__replica_place_agrees(p->all->place, hello->list))
        status = tt__fail(TT_ERR_PROTOCOL, "it was started with --replicas %.*s, this one with %.*s",
                          (int)hello->list.size, (const char *)hello->list.data, own_size, own_list);
    else if (!status && (hello->member != p->member || hello->id == *as))
        status = tt__fail(TT_ERR_PROTOCOL, "who listens there is not replica %d of this store", p->member + 1);
    hello->list = (tt__span){0};
    tt_store_value_free(&value);
    return status;
}

static tt_status connect_peer(tt__replica_peer *p, tt__store_client *client, uint64_t *as, tt__replica_hello *hello) {
    TT__TRY(tt__net_probe(p->host, p->port, tt__deadline_ms(LISTENS_MS)));
    TT__TRY(
        tt__store_client_open(client, p->host, p->port, TT_STORE_TORCH_2, &p->all->access, tt__deadline_ms(OPEN_MS)));
    return exchange_hellos(p, client, as, hello);
}

/* Note that the member is there, for who this replica was when it said so; or, without a hello, that it is not. False:
 * this one is another by now. */
static bool set_view(tt__replica_peer *p, uint64_t as, const tt__replica_hello *hello, int fd) {
    pthread_mutex_lock(&p->all->lock);
    if (hello && as != p->all->own.id) {
        pthread_mutex_unlock(&p->all->lock);
        return false;
    }
    p->view.up = hello != NULL;
    if (hello) {
        p->view.hello = *hello;
        p->view.times++;
    } else {
        snprintf(p->view.why, sizeof p->view.why, "%.*s", (int)sizeof p->view.why - 1, tt_last_error());
    }
    if (p->fd >= 0)
        close(p->fd);
    p->fd = fd < 0 ? -1 : tt__fd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); /* its own, as the client may close the other */
    tt__bytes_free(&p->queue);
    pthread_mutex_unlock(&p->all->lock);
    p->all->news(p->all->user);
    return true;
}

/* Take what is to be sent; waits for it until it is time to ask whether the other is there. False: the end. */
static bool take_queue(tt__replica_peer *p, tt__bytes *queue) {
    const struct timespec until = tt__timespec_ms(tt__deadline_ms(ASK_EVERY_MS));
    int error = 0;
    pthread_mutex_lock(&p->all->lock);
    while (!p->all->stop && !p->queue.size && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&p->wake, &p->all->lock, &until);
    *queue = p->queue;
    p->queue = (tt__bytes){0};
    bool stop = p->all->stop;
    pthread_mutex_unlock(&p->all->lock);
    return !stop;
}

static tt_status ask_whether_there(tt__store_client *client) {
    uint8_t echo[4];
    int64_t deadline_ms = tt__deadline_ms(ANSWER_MS);
    TT__TRY(tt__store_client_begin(client, TT__STORE_PING));
    tt__store_put_u32(&client->out, 1);
    TT__TRY(tt__store_client_send(client, deadline_ms));
    return tt__store_client_read(client, echo, sizeof echo, deadline_ms);
}

/* However slow the link is: each piece has its own deadline. */
static tt_status send_in_pieces(tt__store_client *client, const tt__bytes *queue) {
    tt_status status = TT_OK;
    for (size_t at = 0; at < queue->size && !status; at += PIECE) {
        size_t size = queue->size - at < PIECE ? queue->size - at : PIECE;
        status = tt__stream_write_full(&client->stream, queue->data + at, size, tt__deadline_ms(ANSWER_MS));
    }
    return status;
}

static void serve_peer(tt__replica_peer *p, tt__store_client *client) {
    tt__bytes queue = {0};
    int64_t asked_ms = tt__now_ms();
    tt_status status = TT_OK;
    while (!status && take_queue(p, &queue)) {
        if (queue.size)
            status = send_in_pieces(client, &queue);
        tt__bytes_free(&queue);
        if (!status && tt__now_ms() - asked_ms >= ASK_EVERY_MS) {
            status = ask_whether_there(client);
            asked_ms = tt__now_ms();
        }
    }
    tt__bytes_free(&queue);
}

static void *peer_thread(void *arg) {
    tt__replica_peer *p = arg;
    while (!peer_stops(p)) {
        tt__store_client client = {.stream.fd = -1};
        tt__replica_hello hello;
        uint64_t as;
        tt_status status = connect_peer(p, &client, &as, &hello);
        if (!status && set_view(p, as, &hello, client.stream.fd))
            serve_peer(p, &client);
        set_view(p, 0, NULL, -1);
        tt__store_client_close(&client);
        if (peer_stops(p))
            break;
        bool refused = status == TT_ERR_PROTOCOL || status == TT_ERR_AUTH;
        struct timespec until = tt__timespec_ms(tt__deadline_ms(refused ? REFUSED_AGAIN_MS : AGAIN_MS));
        pthread_mutex_lock(&p->all->lock);
        if (!p->all->stop)
            pthread_cond_timedwait(&p->wake, &p->all->lock, &until);
        pthread_mutex_unlock(&p->all->lock);
    }
    return NULL;
}

tt_status tt__replica_peers_add(tt__replica_peers *peers, int member, const char *host, int port) {
    tt__replica_peer *p = &peers->peers[member];
    p->host = host;
    p->port = port;
    tt_status status = tt__thread_create(&p->thread, peer_thread, p, "the thread that speaks to a replica");
    p->started = !status;
    return status;
}

void tt__replica_peers_free(tt__replica_peers *peers) {
    pthread_mutex_lock(&peers->lock);
    peers->stop = true;
    for (int i = 0; i < TT__REPLICAS_MAX; i++) {
        if (peers->peers[i].fd >= 0)
            shutdown(peers->peers[i].fd, SHUT_RDWR);
        pthread_cond_signal(&peers->peers[i].wake);
    }
    pthread_mutex_unlock(&peers->lock);
    for (int i = 0; i < TT__REPLICAS_MAX; i++) {
        tt__replica_peer *p = &peers->peers[i];
        if (p->started)
            pthread_join(p->thread, NULL);
        tt__bytes_free(&p->queue);
        pthread_cond_destroy(&p->wake);
    }
    pthread_mutex_destroy(&peers->lock);
}

void tt__replica_peers_joined(tt__replica_peers *peers, uint64_t cluster) {
    pthread_mutex_lock(&peers->lock);
    peers->own.cluster = cluster;
    pthread_mutex_unlock(&peers->lock);
}

void tt__replica_peers_anew(tt__replica_peers *peers, uint64_t id) {
    pthread_mutex_lock(&peers->lock);
    peers->own.id = id;
    peers->own.cluster = 0;
    for (int i = 0; i < TT__REPLICAS_MAX; i++) {
        tt__replica_peer *p = &peers->peers[i];
        p->view.up = false;
        if (p->fd >= 0)
            shutdown(p->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&peers->lock);
}

tt__replica_peer_view tt__replica_peers_view(tt__replica_peers *peers, int member) {
    pthread_mutex_lock(&peers->lock);
    tt__replica_peer_view view = peers->peers[member].view;
    pthread_mutex_unlock(&peers->lock);
    return view;
}

bool tt__replica_peers_tell(tt__replica_peers *peers, int member, const tt__bytes *words) {
    tt__replica_peer *p = &peers->peers[member];
    pthread_mutex_lock(&peers->lock);
    bool good = p->view.up && !words->failed && p->queue.size + words->size < QUEUE_MAX;
    if (good) {
        tt__store_put_u8(&p->queue, (uint8_t)tt__store_op_table[TT__STORE_REPLICA_TELL].opcode[TT_STORE_TORCH_2]);
        tt__store_put_string(&p->queue, (tt__span){words->data, words->size});
        good = !p->queue.failed;
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&peers->lock);
    return good;
}
