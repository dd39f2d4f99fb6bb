/* A worker that has the job secret and means harm, one way at a time: it speaks the packets of workers by itself, each
 * of them well made. It may break nothing but itself: the others' calls, passes and shutdown go on as without it. */
#include "rpc/calls/sending.h"
#include "rpc/rpc_state.h"
#include "rpc/values/rpc_wire.h"

#include "support/ranks.h"
#include "support/rpc_packet.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <sys/mman.h>
#include <tutti/functional.h>
#include <tutti/rpc_training.h>

enum { HOSTILE = 2, WORLD = 3, ROUNDS = 200, SLOW_MS = 2000 };

/* ---- functions */

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION_NAMED(add, "insider_add", "(int a, int b) -> int");

static tt_future *never;

static tt_status later(tt_rpc_call *call) { return tt_rpc_return_future(call, never); }
TT_RPC_FUNCTION_NAMED(later, "insider_later", "() -> any");

static tt_status twice(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_tensor(tt_scale(tt_rpc_arg_tensor(call, 0), 2)));
}
TT_RPC_FUNCTION_NAMED(twice, "insider_double", "(tensor x) -> tensor");

/* ---- what it sends */

static void put_counted(packet *p, uint8_t tag, uint32_t count) {
    put(p, &tag, 1);
    put(p, &count, sizeof count);
    header_of(p)->value_bytes += 5;
}

static void put_int(packet *p, int64_t number) {
    uint8_t tag = TT__TAG_INT;
    put(p, &tag, 1);
    put(p, &number, sizeof number);
    header_of(p)->value_bytes += 9;
}

static void send_packet(tt_rpc *rpc, int to, packet *p) {
    tt__rpc_lock(rpc);
    for (int i = 0; i < 20000 && !rpc->peers[to]->lost && tt__unsent_bytes(rpc->network->messages, to) > (1 << 20);
         i++) {
        rpc->network->ops->progress(rpc->network);
        tt__rpc_unlock(rpc);
        usleep(100);
        tt__rpc_lock(rpc);
    }
    tt_ignore(tt__rpc_send(rpc, to, p->data, p->size, NULL));
    tt__rpc_unlock(rpc);
}

/* ---- a stage for three */

typedef struct stage {
    _Atomic int ready, over, pid;
} stage;

typedef struct scene {
    void (*hostile)(tt_rpc *rpc, stage *s);
    void (*other)(tt_rpc *rpc, stage *s, int rank);
    int max_threads;
    int hostile_rank; /* 0: HOSTILE; below 0: rank 0 */
    bool all_leave;   /* the shutdown succeeds for all; else others see that the hostile one is lost */
    stage *stage;
} scene;

static int rank_of_hostile(const scene *scene) { return scene->hostile_rank < 0 ? 0 : HOSTILE; }

static void await(_Atomic int *what, int value) {
    int64_t until = tt__deadline_ms(PATIENCE_MS);
    while (atomic_load(what) < value) {
        CHECK(tt__left_ms(until));
        usleep(1000);
    }
}

static bool is_leaving(tt_rpc *rpc, int id) {
    tt__rpc_lock(rpc);
    bool leaving = rpc->peers[id]->leaving;
    tt__rpc_unlock(rpc);
    return leaving;
}

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = NULL;
    tt_rpc *rpc = NULL;
    char name[20];
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK(never = tt_future_new());
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    CHECK_OK(tt_rpc_init(&rpc, name, .group = group, .max_threads = scene->max_threads));
    if (rank == rank_of_hostile(scene)) {
        scene->hostile(rpc, scene->stage);
        raise(SIGKILL);
    }
    scene->other(rpc, scene->stage, rank);
    tt_status status = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
    if (status && (scene->all_leave || status != TT_ERR_PEER))
        fprintf(stderr, "worker %d: %s\n", rank, tt_last_error());
    CHECK(!status || (!scene->all_leave && status == TT_ERR_PEER));
    tt_future_free(never);
    tt_destroy_process_group(group);
    return 0;
}

static void play(scene scene) {
    ranks ranks;
    scene.stage = mmap(NULL, sizeof *scene.stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene.stage != MAP_FAILED);
    start_ranks(&ranks, WORLD, be_worker, &scene);
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == rank_of_hostile(&scene) ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
    munmap(scene.stage, sizeof *scene.stage);
}

static void calls_go_on(tt_rpc *rpc, stage *s, int rank) {
    if (rank == 0) {
        await(&s->over, 1);
        return;
    }
    await(&s->ready, 1);
    int64_t slowest = 0;
    for (int i = 0; i < ROUNDS; i++) {
        tt_rpc_value sum = tt_rpc_none();
        int64_t since = tt__now_ms();
        CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(i), tt_rpc_int(1)),
                             .result = &sum, .timeout_ms = PATIENCE_MS));
        int64_t took = tt__now_ms() - since;
        slowest = took > slowest ? took : slowest;
    }
    CHECK(slowest < SLOW_MS + leeway_ms());
    atomic_store(&s->over, 1);
}

/* ---- it takes threads: calls that wait for a value that is never made */

static void take_threads(tt_rpc *rpc, stage *s) {
    packet p;
    for (uint32_t i = 0; i < 400; i++) {
        begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "tutti.module.check");
        put_counted(&p, TT__TAG_LIST, 1);
        put_counted(&p, TT__TAG_RREF, 0);
        put_ref(&p, 0, HOSTILE, (uint64_t)1 << 40);
        send_packet(rpc, 0, &p);
    }
    usleep(300000);
    atomic_store(&s->ready, 1);
    await(&s->over, 1);
}

static void it_takes_no_thread_from_others(void **state) {
    (void)state;
    play((scene){.hostile = take_threads, .other = calls_go_on, .max_threads = 64});
}

/* ---- it looks for calls of its own among very many */

static void forget_among_many(tt_rpc *rpc, stage *s) {
    packet p;
    for (uint32_t i = 0; i < 100000; i++) {
        begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i}, "insider_later");
        put_counted(&p, TT__TAG_LIST, 0);
        send_packet(rpc, 0, &p);
    }
    atomic_store(&s->ready, 1);
    for (uint32_t i = 0; !atomic_load(&s->over); i++) {
        begin_packet(
            &p, (tt__rpc_header){.kind = i % 2 ? TT__RPC_FORGET : TT__RPC_PROBE, .id = 1 << 20, .serial = 1 << 20}, "");
        send_packet(rpc, 0, &p);
    }
}

static void it_searches_at_no_cost_of_others(void **state) {
    (void)state;
    play((scene){.hostile = forget_among_many, .other = calls_go_on});
}

/* ---- contexts of its own without end, whose owner never answers */

enum { CONTEXTS = 20000, CONTEXTS_MAX = 1 << 14 };

static void send_contexts(tt_rpc *rpc, stage *s) {
    packet p;
    tt__rpc_lock(rpc);
    tt__messages_take_packets(rpc->network->messages, NULL, NULL); /* it answers nothing */
    tt__rpc_unlock(rpc);
    for (uint32_t i = 0; i < CONTEXTS || !atomic_load(&s->over); i++) {
        if (i == CONTEXTS)
            atomic_store(&s->ready, 1);
        begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = i, .context = (uint64_t)HOSTILE << 40 | (i + 1)},
                     "insider_add");
        put_counted(&p, TT__TAG_LIST, 2);
        put_int(&p, 1);
        put_int(&p, 1);
        send_packet(rpc, 0, &p);
    }
}

static void calls_and_contexts_go_on(tt_rpc *rpc, stage *s, int rank) {
    calls_go_on(rpc, s, rank);
    CHECK(tt_dist_autograd_context_count(rpc) <= CONTEXTS_MAX);
}

static void its_contexts_have_bounds(void **state) {
    (void)state;
    play((scene){.hostile = send_contexts, .other = calls_and_contexts_go_on});
}

/* ---- it leads passes over contexts that others begin */

static void lead_passes(tt_rpc *rpc, stage *s) {
    await(&s->ready, 1);
    for (int64_t i = 0; i < 64; i++) /* of worker 0 */
        for (int to = 0; to < 2; to++) {
            tt_rpc_value ignored = tt_rpc_none();
            tt_ignore(tt_rpc_sync(
                rpc, NULL, "tutti.autograd.reach", .to_id = to, .result = &ignored,
                .args = TT_RPC_ARGS(tt_rpc_int(i), tt_rpc_int(77), tt_rpc_bool(false), tt_rpc_bytes("", 0))));
            tt_rpc_value_free(&ignored);
        }
    atomic_store(&s->ready, 2);
    await(&s->over, 1);
}

static void lead_own_pass(tt_rpc *rpc, stage *s, int rank) {
    TT_AUTO_SCOPE;
    int64_t context;
    tt_rpc_value doubled;
    if (rank == 1) {
        await(&s->over, 1);
        return;
    }
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(1), TT_F32), true);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_double", .to_id = 1, .args = TT_RPC_ARGS(tt_rpc_tensor(x)),
                         .result = &doubled));
    tt_tensor *loss = tt_rpc_take_tensor(&doubled);
    atomic_store(&s->ready, 1);
    await(&s->ready, 2);
    CHECK_OK(tt_dist_autograd_backward(rpc, context, &loss, 1));
    CHECK(tt_dist_autograd_grad(rpc, context, x));
    CHECK_OK(tt_dist_autograd_end(rpc, context));
    atomic_store(&s->over, 1);
}

static void it_leads_no_pass_of_others(void **state) {
    (void)state;
    play((scene){.hostile = lead_passes, .other = lead_own_pass});
}

/* ---- it says that all may leave, though others work */

static void say_end(tt_rpc *rpc, stage *s) {
    packet p;
    for (int to = 1; to < WORLD; to++) {
        tt_rpc_value sum = tt_rpc_none();
        begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_END}, "");
        send_packet(rpc, to, &p);
        CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = to, .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1)),
                             .result = &sum)); /* it has come */
    }
    atomic_store(&s->ready, 1);
    await(&s->over, 1);
}

static void work_while_others_leave(tt_rpc *rpc, stage *s, int rank) {
    await(&s->ready, 1);
    if (rank == 1)
        return;
    for (int i = 0; i < ROUNDS || !is_leaving(rpc, 1); i++) {
        tt_rpc_value sum = tt_rpc_none();
        CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = 1, .args = TT_RPC_ARGS(tt_rpc_int(i), tt_rpc_int(1)),
                             .result = &sum));
    }
    atomic_store(&s->over, 1);
}

static void it_ends_nobody_that_works(void **state) {
    (void)state;
    play((scene){.hostile = say_end, .other = work_while_others_leave, .hostile_rank = -1});
}

/* ---- it asks whether one is idle, after the leader has */

static void ask_in_between(tt_rpc *rpc, stage *s) {
    packet p;
    tt_rpc_value sum = tt_rpc_none();
    await(&s->ready, 1);
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_WAVE, .id = 99}, "");
    send_packet(rpc, 1, &p);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = 1, .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1)),
                         .result = &sum)); /* it has come */
    atomic_store(&s->over, 1);
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
}

static void leave_one_after_the_other(tt_rpc *rpc, stage *s, int rank) {
    tt_rpc_value sum = tt_rpc_none();
    if (rank == 0)
        return;
    while (!is_leaving(rpc, 0)) /* it leads: its question follows at once, before its reply */
        usleep(1000);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1)),
                         .result = &sum));
    atomic_store(&s->ready, 1);
    await(&s->over, 1);
}

static void it_hides_no_question_of_the_leader(void **state) {
    (void)state;
    play((scene){.hostile = ask_in_between, .other = leave_one_after_the_other, .all_leave = true});
}

/* ---- it answers for others that calls wait for each other */

static tt_status stop(tt_rpc_call *call) {
    raise(SIGSTOP);
    return tt_rpc_return(call, tt_rpc_int(1));
}
TT_RPC_FUNCTION_NAMED(stop, "insider_stop", "() -> int");

static tt_status relay(tt_rpc_call *call) {
    tt_rpc_value value = tt_rpc_none();
    TT__TRY(tt_rpc_sync(tt_rpc_of_call(call), NULL, "insider_stop", .to_id = tt_rpc_caller(call), .result = &value));
    return tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(relay, "insider_relay", "() -> int");

static void send_stuck(tt_rpc *rpc, uint32_t guess, uint32_t own_call) {
    packet p;
    uint8_t zero = 0;
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_PROBE, .id = 1, .context = guess, .serial = own_call}, "");
    send_packet(rpc, 0, &p);
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_PROBED, .flags = 3, .id = guess}, "");
    put_counted(&p, TT__TAG_TEXT, 0);
    put(&p, &zero, 1);
    header_of(&p)->value_bytes++;
    send_packet(rpc, 0, &p);
}

static void answer_for_others(tt_rpc *rpc, stage *s) {
    packet p;
    await(&s->ready, 1);
    begin_packet(&p, (tt__rpc_header){.kind = TT__RPC_CALL, .id = 7}, "insider_add"); /* all threads are taken */
    put_counted(&p, TT__TAG_LIST, 2);
    put_int(&p, 1);
    put_int(&p, 1);
    send_packet(rpc, 0, &p);
    usleep(800000); /* a search begins after half a second; numbers that it draws before would be others */
    for (uint32_t guess = 1; guess < 4; guess++)
        send_stuck(rpc, guess, 7);
    CHECK(tt_rpc_sync(rpc, NULL, "insider_add", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1)),
                      .timeout_ms = 200)); /* no thread is free for it, as worker 0 waits on */
    tt_clear_error();
    kill(atomic_load(&s->pid), SIGCONT);
    await(&s->over, 1);
}

static void wait_for_who_is_stopped(tt_rpc *rpc, stage *s, int rank) {
    tt_rpc_value value = tt_rpc_none();
    if (rank == 0) {
        await(&s->over, 1);
        return;
    }
    atomic_store(&s->pid, getpid());
    atomic_store(&s->ready, 1);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "insider_relay", .to_id = 0, .result = &value));
    atomic_store(&s->over, 1);
}

static void it_answers_for_nobody_else(void **state) {
    (void)state;
    play((scene){.hostile = answer_for_others, .other = wait_for_who_is_stopped, .max_threads = 1});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_no_thread_from_others), cmocka_unit_test(it_searches_at_no_cost_of_others),
        cmocka_unit_test(its_contexts_have_bounds),       cmocka_unit_test(it_leads_no_pass_of_others),
        cmocka_unit_test(it_ends_nobody_that_works),      cmocka_unit_test(it_hides_no_question_of_the_leader),
        cmocka_unit_test(it_answers_for_nobody_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
