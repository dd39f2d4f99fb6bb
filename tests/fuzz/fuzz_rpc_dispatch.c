/* A worker that is fed with packets of three others, in any order; there are no sockets. It has made calls to them, to
 * which they may reply. Whatever comes, it can be shut down soon, with nothing left.
 *
 * Input: packets, each a byte (whose: its last two bits; 4: the counts in the header are made to fit; 8: its number is
 * that of a call that was made), two bytes of length, and so many bytes. */
#include "comm/message/message_parts.h"
#include "rpc/rpc_state.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, CALLS = 6 };

/* ---- functions */

static tt_status fuzz_echo(tt_rpc_call *call) {
    tt_rpc_value value;
    return tt_rpc_take_arg(call, 0, &value) ? tt_last_status() : tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(fuzz_echo, "echo", "(any value) -> any");

static tt_status fuzz_sum(tt_rpc_call *call) {
    return tt_rpc_return(call,
                         tt_rpc_int((int64_t)((uint64_t)tt_rpc_arg_int(call, 0) + (uint64_t)tt_rpc_arg_int(call, 1))));
}
TT_RPC_FUNCTION_NAMED(fuzz_sum, "sum", "(int a, int b) -> int");

static tt_status fuzz_pass(tt_rpc_call *call) {
    tt_future *future;
    if (tt_rpc_async(&future, tt_rpc_of_call(call), NULL, "echo", .to_id = 2,
                     .args = TT_RPC_ARGS(*tt_rpc_arg(call, 0))))
        return tt_last_status();
    tt_status status = tt_rpc_return_future(call, future);
    tt_future_free(future);
    return status;
}
TT_RPC_FUNCTION_NAMED(fuzz_pass, "pass", "(any value) -> any");

/* ---- a network of links that swallow everything */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;

static ssize_t swallow(tt__transport *transport, const struct iovec *parts, int count) {
    ssize_t all = 0;
    (void)transport;
    for (int i = 0; i < count; i++)
        all += (ssize_t)parts[i].iov_len;
    return all;
}

static ssize_t give_nothing(tt__transport *transport, const struct iovec *parts, int count) {
    (void)transport;
    (void)parts;
    (void)count;
    return 0;
}

static void end_transport(tt__transport *transport) { (void)transport; }

static const tt__transport_ops played = {false, swallow, give_nothing, end_transport};

static void net_unlock(tt__rpc_network *network) {
    (void)network;
    pthread_mutex_unlock(&lock);
}

static bool net_progress(tt__rpc_network *network) {
    (void)network;
    return false;
}

static void net_sleep(tt__rpc_network *network, int64_t ms) {
    struct timespec until;
    (void)network;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000 + (until.tv_nsec + ms % 1000 * 1000000) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ms % 1000 * 1000000) % 1000000000;
    pthread_cond_timedwait(&woken, &lock, &until);
}

static void net_wake(tt__rpc_network *network) {
    (void)network;
    pthread_cond_broadcast(&woken);
}

static tt__rpc_reach net_reach(tt__rpc_network *network, int id) {
    (void)network;
    (void)id;
    return TT__RPC_REACHED;
}

static tt_status net_check(tt__rpc_network *network, int id) {
    (void)network;
    (void)id;
    return TT_OK;
}

static tt_status net_find(tt__rpc_network *network, const char *name, int *id) {
    (void)network;
    *id = name[0] - 'a';
    return *id >= 0 && *id < WORKERS && !name[1] ? TT_OK : TT_ERR_NOT_FOUND;
}

static tt_status net_name_of(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]) {
    (void)network;
    name[0] = (char)('a' + id);
    name[1] = '\0';
    return id >= 0 && id < WORKERS ? TT_OK : TT_ERR_NOT_FOUND;
}

static int net_next(tt__rpc_network *network, int after) {
    (void)network;
    return after + 1 < WORKERS ? after + 1 : -1;
}

static void net_close(tt__rpc_network *network, bool quietly) {
    tt__messages_close(network->messages, true);
    (void)quietly;
}

static const tt__rpc_network_ops net_ops = {.unlock = net_unlock,
                                            .progress = net_progress,
                                            .sleep = net_sleep,
                                            .wake = net_wake,
                                            .reach = net_reach,
                                            .check = net_check,
                                            .find = net_find,
                                            .name_of = net_name_of,
                                            .next = net_next,
                                            .close = net_close};

static tt_rpc *begin_worker(tt__rpc_network *network) {
    tt_rpc *rpc = NULL;
    *network = (tt__rpc_network){.ops = &net_ops, .lock = &lock, .workers = WORKERS};
    if (tt__messages_new(&network->messages,
                         &(tt__messages_config){.size = WORKERS, .heartbeat_ms = 5000, .lock = &lock}))
        abort();
    for (int peer = 1; peer < WORKERS; peer++)
        if (!tt__link_new(network->messages, peer, &played))
            abort();
    if (tt__rpc_begin(&rpc, network, &(tt_rpc_init_args){.name = "a", .max_memory = 1 << 20, .threads = 2}))
        abort();
    return rpc;
}

/* ---- feeding */

/* Make the header's counts those of a packet of this size. */
static void make_fit(uint8_t *packet, size_t size, bool of_call) {
    tt__rpc_header header;
    memcpy(&header, packet, sizeof header);
    size_t left = size - sizeof header;
    header.kind = (uint8_t)(header.kind % TT__RPC_PACKET_KINDS);
    header.parts %= 4;
    header.refs %= 4;
    while (header.parts * sizeof(uint64_t) + header.refs * sizeof(tt__rpc_ref) > left)
        header.parts = header.refs = 0;
    left -= header.parts * sizeof(uint64_t) + header.refs * sizeof(tt__rpc_ref);
    header.name_bytes = (uint16_t)(header.name_bytes % 8 < left ? header.name_bytes % 8 : left);
    header.value_bytes = (uint32_t)(left - header.name_bytes);
    header.credit %= 64;
    if (of_call)
        header.id = (1u << 20) + header.id % CALLS;
    memcpy(packet, &header, sizeof header);
}

static void feed(tt_rpc *rpc, unsigned how, const uint8_t *data, size_t size) {
    tt__rpc_packet *packet = malloc(sizeof *packet + size);
    if (!packet)
        abort();
    *packet = (tt__rpc_packet){.size = size, .room = size};
    memcpy(packet->data, data, size);
    if (how & 4 && size >= sizeof(tt__rpc_header))
        make_fit(packet->data, size, how & 8);
    pthread_mutex_lock(&lock);
    rpc->deliver(rpc, rpc->peers[how % WORKERS ? how % WORKERS : 1], packet);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&lock);
}

static void feed_all(tt_rpc *rpc, const uint8_t *data, size_t size) {
    while (size > 3) {
        size_t n = data[1] | (size_t)data[2] << 8;
        n = n < size - 3 ? n : size - 3;
        feed(rpc, data[0], data + 3, n);
        data += 3 + n;
        size -= 3 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt__rpc_network network;
    tt_future *calls[CALLS];
    tt_rref *kept = NULL;
    tt_rpc_value value = tt_rpc_text("to be echoed");
    tt_rpc *rpc = begin_worker(&network);
    for (int i = 0; i < CALLS; i++)
        if (tt_rpc_async(&calls[i], rpc, NULL, "echo", .to_id = 1 + i % 3, .args = {&value, 1}))
            abort();
    if (tt_rpc_remote(&kept, rpc, NULL, "echo", .to_id = 3, .args = {&value, 1}))
        abort();
    feed_all(rpc, data, size);
    if (tt_rpc_shutdown(rpc, .at_once = true, .timeout_ms = 20000))
        abort();
    for (int i = 0; i < CALLS; i++) {
        if (!tt_future_is_done(calls[i]))
            abort();
        tt_future_free(calls[i]);
    }
    tt_rref_free(kept);
    tt_clear_error();
    return 0;
}
