/* tutti bench store: operations a second of a store and its clients, one thread each, over loopback. */
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

#include <tutti/store.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_SIZE = 64, MAX_CLIENTS = 1024 };

static const tt__flag store_flags[] = {
    TT__VALUE("clients", 'c', "N", "clients at a time, each with its own connection and thread (default 1)"),
    TT__VALUE("iterations", 'i', "N", "operations of each kind and client (default 5000)"),
    {0}};

static int bench_store_main(int argc, char **argv);

const tt__command tt__bench_store = {
    .name = "bench store",
    .what = "operations a second of the key-value store",
    .usage = "[--clients N] [--iterations N]",
    .text = "Operations a second of a store served here, all clients together, on small values.",
    .flags = store_flags,
    .run = bench_store_main,
};

static char value_bytes[VALUE_SIZE + 1];

static tt_status op_set(tt_store *store, const char *key) { return tt_store_set(store, key, value_bytes, VALUE_SIZE); }

static tt_status op_get(tt_store *store, const char *key) {
    tt_store_value value;
    tt_status status = tt_store_get(store, key, &value);
    if (!status)
        tt_store_value_free(&value);
    return status;
}

static tt_status op_add(tt_store *store, const char *key) {
    (void)key;
    return tt_store_add(store, "counter", 1, NULL);
}

static tt_status op_wait(tt_store *store, const char *key) { return tt_store_wait(store, &key, 1, 0); }

static const struct {
    const char *name;
    tt_status (*run)(tt_store *store, const char *key);
} ops[] = {{"set", op_set}, {"get", op_get}, {"add", op_add}, {"wait", op_wait}};

enum { OPS = sizeof ops / sizeof *ops };

typedef struct client {
    pthread_t thread;
    int index;
    int64_t iterations;
    tt_store *store;
    pthread_barrier_t *barrier;
    int64_t took_ns[OPS];
    tt_status status;
} client;

/* Run one round. It ends with a request that has a reply: a set has none, and may still be on its way. */
static tt_status one_round(client *c, int op) {
    char key[64];
    int64_t count, start = tt__now_ns();
    for (int64_t i = 0; i < c->iterations; i++) {
        snprintf(key, sizeof key, "k%d/%lld", c->index, (long long)i);
        tt_status status = ops[op].run(c->store, key);
        if (status)
            return status;
    }
    tt_status status = tt_store_num_keys(c->store, &count);
    c->took_ns[op] = tt__now_ns() - start;
    return status;
}

static void *run_client(void *arg) {
    client *c = arg;
    for (int op = 0; op < OPS; op++) {
        pthread_barrier_wait(c->barrier);
        if (!c->status && (c->status = one_round(c, op)))
            tt_report();
    }
    return NULL;
}

static int print_results(const client *clients, int n, int64_t iterations) {
    for (int op = 0; op < OPS; op++) {
        int64_t slowest = 1;
        for (int i = 0; i < n; i++) {
            if (clients[i].status)
                return TT__EXIT_FAILED;
            if (clients[i].took_ns[op] > slowest)
                slowest = clients[i].took_ns[op];
        }
        tt__print(stdout, "{\"bench\":\"store\",\"op\":\"%s\",\"clients\":%d,\"ops_per_sec\":%.0f}\n", ops[op].name, n,
                  (double)iterations * n * 1e9 / (double)slowest);
    }
    return TT__EXIT_OK;
}

/* Connect all clients before the first thread starts, since threads can't be undone. */
static int connect_clients(client *clients, int n, int64_t iterations, int port) {
    for (int i = 0; i < n; i++) {
        clients[i].index = i;
        clients[i].iterations = iterations;
        if (tt_tcp_store(&clients[i].store, "127.0.0.1", port)) {
            tt_report();
            return TT__EXIT_FAILED;
        }
    }
    return TT__EXIT_OK;
}

static int run_clients(client *clients, int n, int64_t iterations) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        clients[i].barrier = &barrier;
        int error = pthread_create(&clients[i].thread, NULL, run_client, &clients[i]);
        if (error) {
            fprintf(stderr, "tutti bench store: can't start a thread for client %d: %s\n", i, strerror(error));
            exit(TT__EXIT_FAILED); /* those that run wait at the barrier for ever */
        }
    }
    for (int i = 0; i < n; i++)
        pthread_join(clients[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    return print_results(clients, n, iterations);
}

static int bench_clients(int n, int64_t iterations) {
    tt_store_server *server = NULL;
    client *clients = calloc((size_t)n, sizeof *clients);
    memset(value_bytes, 'x', VALUE_SIZE);
    if (!clients || tt_store_server_new(&server, NULL, 0)) {
        tt_report();
        free(clients);
        return TT__EXIT_FAILED;
    }
    int rc = connect_clients(clients, n, iterations, tt_store_server_port(server));
    if (!rc)
        rc = run_clients(clients, n, iterations);
    for (int i = 0; i < n; i++)
        tt_store_free(clients[i].store);
    tt_store_server_free(server);
    free(clients);
    return rc;
}

static int bench_store_main(int argc, char **argv) {
    int64_t clients = 1, iterations = 5000;
    for (int c; (c = tt__cli_next_flag(&tt__bench_store, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if ((c == 'c' && tt__parse_i64("--clients", optarg, 1, MAX_CLIENTS, &clients)) ||
            (c == 'i' && tt__parse_i64("--iterations", optarg, 1, 100000000, &iterations)))
            return tt__cli_usage_error("bench store", "%s", tt_last_error());
    }
    return bench_clients((int)clients, iterations);
}
