/* The conformance suite's program: conformance BACKEND TRANSPORT [WORLD...]
 *
 * TRANSPORT is shm, tcp, both: shared memory inside two pretended hosts, TCP between them, or interleaved: the same,
 * where ranks alternate between the hosts. Other back ends take "-". */
#include "conformance.h"

#include <time.h>

static const char *backend, *transport;

void next_case(ctx *c) {
    c->cases++;
    c->kind = (int)(c->cases % KINDS);
    c->async = c->cases / KINDS % 2;
}

void *buffer(const ctx *c, int which) {
    bool symmetric = c->kind == SYMMETRIC || (c->kind == MIXED && c->rank % 2 == 0);
    return symmetric ? c->symmetric[which] : c->plain[which];
}

void finish(ctx *c, tt_work *work) {
    CHECK(work);
    if (c->cases % 2)
        while (!tt_work_is_completed(work))
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    CHECK_OK(tt_work_wait(work));
    CHECK(tt_work_is_completed(work));
    CHECK_OK(tt_work_wait(work)); /* it stays done */
    tt_work_free(work);
}

static unsigned char *memory(void) {
    unsigned char *at = malloc(MAX_BYTES);
    CHECK(at);
    return at;
}

static ctx open_ctx(tt_store *store, int rank, int world) {
    ctx c = {.rank = rank, .world = world, .native = !strcmp(backend, "native")};
    bool interleaved = !strcmp(transport, "interleaved"), hosts = interleaved || !strcmp(transport, "both");
    bool left = interleaved ? rank % 2 : rank < (world + 1) / 2;
    CHECK(!hosts || !setenv("TT_HOST_ID", left ? "left" : "right", 1));
    CHECK_OK(tt_init_process_group(&c.group, .backend = backend, .store = store, .rank = rank, .world_size = world,
                                   .timeout_ms = 2 * PATIENCE_MS, .heartbeat_ms = CALM_MS,
                                   .transport = !c.native ? NULL
                                                : hosts   ? "auto"
                                                          : transport));
    CHECK(tt_get_rank(c.group) == rank && tt_get_world_size(c.group) == world);
    const char *name = tt_get_backend(c.group); /* a path says nothing of it */
    CHECK(strchr(backend, '/') ? *name : !strncmp(backend, name, strlen(name)));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tt_group_alloc((void **)&c.symmetric[i], c.group, MAX_BYTES));
        c.plain[i] = memory();
    }
    for (int r = 0; r < world; r++)
        c.inputs[r] = memory();
    c.want = memory();
    return c;
}

static void close_ctx(ctx *c) {
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tt_group_free(c->group, c->symmetric[i]));
        free(c->plain[i]);
    }
    CHECK_OK(tt_barrier(c->group));
    tt_destroy_process_group(c->group);
    for (int r = 0; r < c->world; r++)
        free(c->inputs[r]);
    free(c->want);
}

static const struct {
    const char *name;
    void (*run)(ctx *c);
} parts[] = {
    {"all_reduce", test_all_reduce},
    {"reduce", test_reduce},
    {"broadcast", test_broadcast},
    {"all_gather", test_all_gather},
    {"barrier", test_barrier},
    {"refusals", test_refusals},
    {"groups", test_groups},
    {"works", test_works},
    {"coalesced", test_coalesced},
    {"reduce_scatter", test_reduce_scatter},
    {"all_gather_v", test_all_gather_v},
    {"gather", test_gather},
    {"scatter", test_scatter},
    {"all_to_all", test_all_to_all},
    {"all_to_all_v", test_all_to_all_v},
    {"messages", test_messages},
    {"batch", test_batch},
    {"monitored_barrier", test_monitored_barrier},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
            return true;
    return false;
}

static int run_all(tt_store *store, int rank, int world, void *arg) {
    const char *only = arg; /* "all_reduce,barrier", or NULL */
    ctx c = open_ctx(store, rank, world);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double begin = now();
        if (only && !is_listed(only, parts[i].name))
            continue;
        parts[i].run(&c);
        if (!rank)
            printf("world %d: %s ok, %.2f s\n", world, parts[i].name, now() - begin);
    }
    close_ctx(&c);
    return 0;
}

int main(int argc, char **argv) {
    static const int usual[] = {1, 2, 3, 4, 8};
    if (argc < 3) {
        fprintf(stderr,
                "usage: conformance BACKEND TRANSPORT [WORLD...]; CONFORMANCE_ONLY=reduce,gather runs some parts,\n"
                "TT_LONG=1 in all worlds\n");
        return 2;
    }
    backend = argv[1];
    transport = argv[2];
    bool few = argc > 3 && !getenv("TT_LONG");
    for (int i = 3; few && i < argc; i++)
        with_ranks(atoi(argv[i]), run_all, getenv("CONFORMANCE_ONLY"));
    for (size_t i = 0; !few && i < sizeof usual / sizeof *usual; i++)
        if (world_is_tried(usual[i]))
            with_ranks(usual[i], run_all, getenv("CONFORMANCE_ONLY"));
    return 0;
}
