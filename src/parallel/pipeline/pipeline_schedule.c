/* Makes, checks and simulates schedules: see pipeline_schedule.h. */
#include "parallel/pipeline/pipeline_schedule.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the schedules: each writes rank `rank`'s list, which has room for three actions for each micro-batch and chunk,
 * and returns how many it wrote ---- */

/* The k-th action of a rank that runs its chunks in turns of `ranks` micro-batches; the last turn may be shorter.
 * `backward`: from the last chunk to the first. */
static tt__act turn_at(const tt__schedule *sizes, int64_t k, bool backward) {
    int64_t turn = sizes->ranks * sizes->chunks, first = k / turn * sizes->ranks, in_turn = k % turn;
    int64_t width = sizes->micros - first < sizes->ranks ? sizes->micros - first : sizes->ranks;
    int64_t chunk = in_turn / width;
    return (tt__act){.kind = backward ? TT__BACKWARD : TT__FORWARD,
                     .chunk = backward ? sizes->chunks - 1 - chunk : chunk,
                     .micro = first + in_turn % width};
}

/* 1F1B with several stages a rank (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
 * Using Megatron-LM", 2021). A rank takes its chunks in turns of R micro-batches. Idle: (R - 1) (F + B) / chunks, at
 * the price of `chunks` times as many transfers. The number of micro-batches is a multiple of R. */
static int64_t list_interleaved(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t total = sizes->micros * sizes->chunks, n = 0, forward = 0, backward = 0;
    int64_t ahead = (sizes->ranks - 1 - rank) * 2 + (sizes->chunks - 1) * sizes->ranks;
    while (forward < ahead && forward < total)
        acts[n++] = turn_at(sizes, forward++, false);
    while (forward < total) {
        acts[n++] = turn_at(sizes, forward++, false);
        acts[n++] = turn_at(sizes, backward++, true);
    }
    while (backward < total)
        acts[n++] = turn_at(sizes, backward++, true);
    return n;
}

/* One forward, one backward (Narayanan et al., "PipeDream-Flush" in "Memory-Efficient Pipeline-Parallel DNN Training",
 * 2021). Rank r begins with R - 1 - r forwards; then each forward is followed by the backward of the oldest. Idle as
 * GPipe's, (R - 1) (F + B), but a rank holds the activations of at most R - r micro-batches. */
static int64_t list_1f1b(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t ahead = sizes->ranks - 1 - rank, n = 0, forward = 0, backward = 0;
    while (forward < ahead && forward < sizes->micros)
        acts[n++] = (tt__act){TT__FORWARD, 0, forward++};
    while (forward < sizes->micros) {
        acts[n++] = (tt__act){TT__FORWARD, 0, forward++};
        acts[n++] = (tt__act){TT__BACKWARD, 0, backward++};
    }
    while (backward < sizes->micros)
        acts[n++] = (tt__act){TT__BACKWARD, 0, backward++};
    return n;
}

/* All forwards, then all backwards (Huang et al., "GPipe", 2019). Idle: (R - 1) (F + B) of a step; a rank holds the
 * activations of all micro-batches. */
static int64_t list_gpipe(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t n = 0;
    (void)rank;
    for (int64_t m = 0; m < sizes->micros; m++)
        acts[n++] = (tt__act){TT__FORWARD, 0, m};
    for (int64_t m = 0; m < sizes->micros; m++)
        acts[n++] = (tt__act){TT__BACKWARD, 0, m};
    return n;
}

/* An evaluation: forwards only, chunk by chunk in turns. */
static int64_t list_forward(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t n = sizes->micros * sizes->chunks;
    (void)rank;
    for (int64_t k = 0; k < n; k++)
        acts[k] = turn_at(sizes, k, false);
    return n;
}

/* The backwards of a rank, in their order, whose weights' halves have not run yet. */
typedef struct kept_back {
    int64_t next, end;
} kept_back;

static tt__act nth_backward(const tt__schedule *sizes, int64_t k) {
    if (sizes->chunks > 1)
        return turn_at(sizes, k, true);
    return (tt__act){TT__BACKWARD, 0, k};
}

/* Add weights' halves until `keep` of them are left. */
static int64_t add_due(tt__act *acts, const tt__schedule *sizes, int64_t rank, kept_back *back, int64_t keep) {
    int64_t n = 0;
    while (back->end - back->next > keep) {
        tt__act act = nth_backward(sizes, back->next++);
        act.kind = TT__WEIGHT_GRADS;
        if (rank || act.chunk)
            acts[n++] = act;
    }
    return n;
}

/* Backward in two halves (Qi et al., "Zero Bubble Pipeline Parallelism", 2023: ZB-H1). The half that the stage before
 * waits for runs at once; the weights' half fills what would be idle. Rank r keeps r of those back, so that it holds no
 * more than rank 0 does in 1F1B: R micro-batches. Idle: (R - 1) (F + I - W). With several chunks a rank it is the
 * interleaved schedule, its backwards halved in the same way. The first stage sends no gradient, so its backward is
 * whole. */
static int64_t list_zero_bubble(tt__act *acts, const tt__schedule *sizes, int64_t rank) {
    int64_t each = sizes->micros * sizes->chunks, n = 0;
    tt__act *whole = acts + each; /* at the end of the room: it is read before it is overwritten */
    int64_t count = sizes->chunks > 1 ? list_interleaved(whole, sizes, rank) : list_1f1b(whole, sizes, rank);
    kept_back back = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        tt__act act = whole[i];
        bool halved = act.kind == TT__BACKWARD && (rank || act.chunk);
        if (halved)
            act.kind = TT__INPUT_GRADS;
        bool is_backward = act.kind != TT__FORWARD;
        acts[n++] = act;
        back.end += is_backward;
        n += is_backward ? add_due(acts + n, sizes, rank, &back, rank) : 0;
    }
    return n + add_due(acts + n, sizes, rank, &back, 0);
}

/* A kind of schedule. */
typedef struct schedule_kind {
    const char *name;
    int64_t (*list)(tt__act *acts, const tt__schedule *sizes, int64_t rank);
    bool several_chunks; /* it may have more than one stage a rank; else exactly one */
} schedule_kind;

static const schedule_kind kinds[] = {
    [TT_PIPELINE_1F1B] = {"1F1B", list_1f1b, false},
    [TT_PIPELINE_GPIPE] = {"GPipe", list_gpipe, false},
    [TT_PIPELINE_INTERLEAVED_1F1B] = {"interleaved 1F1B", list_interleaved, true},
    [TT_PIPELINE_ZERO_BUBBLE] = {"zero-bubble", list_zero_bubble, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds, MOST_RANKS = 4096, MOST_CHUNKS = 256 };
static const int64_t MOST_MICROS = 1 << 20;

static bool is_kind(tt_pipeline_schedule kind) { return (unsigned)kind < KINDS; }

const char *tt__schedule_name(tt_pipeline_schedule kind) { return is_kind(kind) ? kinds[kind].name : "?"; }

char tt__act_letter(tt__act_kind kind) { return "FBIW"[kind]; }

/* ---- making ---- */

static tt_status check_schedule_sizes(tt_pipeline_schedule kind, int64_t ranks, int64_t chunks, int64_t micros) {
    if (!is_kind(kind))
        return tt__fail(TT_ERR_INVALID, "expected a schedule, TT_PIPELINE_..., got %d", (int)kind);
    const char *name = kinds[kind].name;
    if (ranks < 1 || ranks > MOST_RANKS)
        return tt__fail(TT_ERR_INVALID, "expected 1 to %d ranks, got %" PRId64, MOST_RANKS, ranks);
    if (micros < 1 || micros > MOST_MICROS)
        return tt__fail(TT_ERR_INVALID, "expected at least 1 micro-batch, and at most %" PRId64 ", got %" PRId64,
                        MOST_MICROS, micros);
    if (chunks < 1 || chunks > MOST_CHUNKS || (chunks > 1 && !kinds[kind].several_chunks))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected %s, got %" PRId64
                        "; interleaved 1F1B and zero-bubble are for several stages a rank",
                        name, kinds[kind].several_chunks ? "1 to 256 stages a rank" : "one stage a rank", chunks);
    if (chunks > 1 && micros % ranks)
        return tt__fail(TT_ERR_INVALID,
                        "%s with %" PRId64 " stages a rank: expected micro-batches in a multiple of the %" PRId64
                        " ranks, got %" PRId64,
                        name, chunks, ranks, micros);
    if (chunks == 1 && micros < ranks && kind != TT_PIPELINE_GPIPE)
        return tt__fail(TT_ERR_INVALID,
                        "%s on %" PRId64 " ranks: expected at least as many micro-batches, got %" PRId64
                        "; GPipe takes any number",
                        name, ranks, micros);
    return TT_OK;
}

static tt_status make_act_lists(tt__schedule *s, int64_t (*list)(tt__act *, const tt__schedule *, int64_t)) {
    s->lists = calloc((size_t)s->ranks, sizeof *s->lists);
    for (int64_t r = 0; s->lists && r < s->ranks; r++) {
        s->lists[r].acts = calloc((size_t)(s->micros * s->chunks) * 3, sizeof(tt__act));
        if (!s->lists[r].acts)
            return tt__fail(TT_ERR_MEMORY, "no memory for a schedule");
        s->lists[r].count = list(s->lists[r].acts, s, r);
    }
    return s->lists ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a schedule");
}

tt_status tt__schedule_make(tt__schedule *out, tt_pipeline_schedule kind, int64_t ranks, int64_t chunks,
                            int64_t micros) {
    *out = (tt__schedule){.ranks = ranks, .chunks = chunks, .micros = micros};
    TT__TRY(check_schedule_sizes(kind, ranks, chunks, micros));
    return make_act_lists(out, kinds[kind].list);
}

tt_status tt__schedule_make_forward(tt__schedule *out, int64_t ranks, int64_t chunks, int64_t micros) {
    *out = (tt__schedule){.ranks = ranks, .chunks = chunks, .micros = micros};
    return make_act_lists(out, list_forward);
}

void tt__schedule_free(tt__schedule *s) {
    for (int64_t r = 0; s->lists && r < s->ranks; r++)
        free(s->lists[r].acts);
    free(s->lists);
    s->lists = NULL;
}

/* ---- checking ---- */

static tt_status fail_act(int64_t rank, const tt__act *act, const char *what) {
    return tt__fail(TT_ERR_INVALID, "rank %" PRId64 ", %c of micro-batch %" PRId64 ", chunk %" PRId64 ": %s", rank,
                    tt__act_letter(act->kind), act->micro, act->chunk, what);
}

/* How many actions of each kind a chunk has had; each kind goes through the micro-batches in order. */
typedef struct chunk_counts {
    int64_t of[TT__ACT_KINDS];
} chunk_counts;

static tt_status check_act(const tt__schedule *s, int64_t rank, const tt__act *act, chunk_counts *counts) {
    if (act->chunk < 0 || act->chunk >= s->chunks || act->micro < 0 || act->micro >= s->micros)
        return fail_act(rank, act, "no such micro-batch or chunk");
    int64_t *of = counts[act->chunk].of;
    int64_t backwards = of[TT__BACKWARD] + of[TT__INPUT_GRADS], weights = of[TT__BACKWARD] + of[TT__WEIGHT_GRADS];
    int64_t expected = act->kind == TT__FORWARD ? of[TT__FORWARD] : act->kind == TT__WEIGHT_GRADS ? weights : backwards;
    if (act->micro != expected)
        return fail_act(rank, act, "out of the order of the micro-batches");
    if (act->kind == TT__BACKWARD && weights != backwards)
        return fail_act(rank, act, "weights' halves of earlier ones are not done");
    if ((act->kind == TT__BACKWARD || act->kind == TT__INPUT_GRADS) && act->micro >= of[TT__FORWARD])
        return fail_act(rank, act, "its forward comes later");
    if (act->kind == TT__WEIGHT_GRADS && act->micro >= backwards)
        return fail_act(rank, act, "its first half comes later");
    of[act->kind]++;
    return TT_OK;
}

static tt_status check_act_list(const tt__schedule *s, int64_t rank, bool forward_only, chunk_counts *counts) {
    memset(counts, 0, (size_t)s->chunks * sizeof *counts);
    for (int64_t i = 0; i < s->lists[rank].count; i++)
        TT__TRY(check_act(s, rank, &s->lists[rank].acts[i], counts));
    for (int64_t c = 0; c < s->chunks; c++) {
        const int64_t *of = counts[c].of;
        int64_t backwards = forward_only ? 0 : s->micros;
        if (of[TT__FORWARD] != s->micros || of[TT__BACKWARD] + of[TT__INPUT_GRADS] != backwards ||
            of[TT__INPUT_GRADS] != of[TT__WEIGHT_GRADS])
            return tt__fail(
                TT_ERR_INVALID,
                "rank %" PRId64 ", chunk %" PRId64 ": expected %" PRId64 " forwards and as many backwards, got %" PRId64
                " F, %" PRId64 " B, %" PRId64 " I, %" PRId64 " W",
                rank, c, s->micros, of[TT__FORWARD], of[TT__BACKWARD], of[TT__INPUT_GRADS], of[TT__WEIGHT_GRADS]);
    }
    return TT_OK;
}

tt_status tt__schedule_check(const tt__schedule *s, bool forward_only) {
    chunk_counts *counts = calloc((size_t)s->chunks, sizeof *counts);
    tt_status status = counts ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory to check a schedule");
    for (int64_t r = 0; r < s->ranks && !status; r++)
        status = check_act_list(s, r, forward_only, counts);
    free(counts);
    return status;
}

/* ---- simulating ---- */

typedef struct simulation {
    const tt__schedule *s;
    const tt__stage_cost *costs;
    double transfer;
    double *forward_end, *backward_end; /* (stages, micros); -1: not yet */
    int64_t *at;                        /* (ranks): the next of its list */
    double *now;                        /* (ranks) */
} simulation;

static double *time_cell(const simulation *sim, double *table, int64_t stage, int64_t micro) {
    return &table[stage * sim->s->micros + micro];
}

/* The time at which all that the action needs is there; -1: not known yet. */
static double act_ready_at(const simulation *sim, int64_t rank, const tt__act *act) {
    int64_t R = sim->s->ranks, stages = R * sim->s->chunks, stage = act->chunk * R + rank;
    bool forward = act->kind == TT__FORWARD;
    if (act->kind == TT__WEIGHT_GRADS)
        return *time_cell(sim, sim->backward_end, stage, act->micro);
    int64_t other = forward ? stage - 1 : stage + 1;
    double own = forward ? 0 : *time_cell(sim, sim->forward_end, stage, act->micro);
    if (other < 0 || other >= stages || own < 0)
        return own;
    double theirs = *time_cell(sim, forward ? sim->forward_end : sim->backward_end, other, act->micro);
    if (theirs < 0)
        return -1;
    theirs += R > 1 ? sim->transfer : 0;
    return theirs > own ? theirs : own;
}

/* Run the actions that rank `rank` can. Returns whether it ran any. */
static bool simulate_rank(simulation *sim, int64_t rank, int64_t first, tt__simulated *out) {
    const tt__act_list *list = &sim->s->lists[rank];
    bool any = false;
    for (; sim->at[rank] < list->count; any = true) {
        const tt__act *act = &list->acts[sim->at[rank]];
        double begin = act_ready_at(sim, rank, act);
        if (begin < 0)
            return any;
        begin = begin > sim->now[rank] ? begin : sim->now[rank];
        int64_t stage = act->chunk * sim->s->ranks + rank;
        double end = begin + sim->costs[stage].of[act->kind];
        if (out->begin)
            out->begin[first + sim->at[rank]] = begin;
        if (out->end)
            out->end[first + sim->at[rank]] = end;
        if (act->kind != TT__WEIGHT_GRADS)
            *time_cell(sim, act->kind == TT__FORWARD ? sim->forward_end : sim->backward_end, stage, act->micro) = end;
        sim->now[rank] = end;
        sim->at[rank]++;
    }
    return any;
}

static tt_status fail_simulated_deadlock(const simulation *sim) {
    char text[512];
    size_t used = 0;
    for (int64_t r = 0; r < sim->s->ranks && used < sizeof text; r++) {
        if (sim->at[r] == sim->s->lists[r].count)
            continue;
        const tt__act *act = &sim->s->lists[r].acts[sim->at[r]];
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%srank %" PRId64 " before %c of micro-batch %" PRId64,
                             used ? ", " : "", r, tt__act_letter(act->kind), act->micro);
    }
    return tt__fail(TT_ERR_STATE, "the ranks of this schedule would wait for each other: %s", text);
}

static int64_t most_held(const tt__schedule *s) {
    int64_t most = 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        int64_t held = 0;
        for (int64_t i = 0; i < s->lists[r].count; i++) {
            tt__act_kind kind = s->lists[r].acts[i].kind;
            held += kind == TT__FORWARD ? 1 : kind == TT__INPUT_GRADS ? 0 : -1;
            most = held > most ? held : most;
        }
    }
    return most;
}

static tt_status run_simulation(simulation *sim, tt__simulated *out) {
    const tt__schedule *s = sim->s;
    int64_t cells = s->ranks * s->chunks * s->micros;
    for (int64_t i = 0; i < cells; i++)
        sim->forward_end[i] = sim->backward_end[i] = -1;
    for (bool any = true; any;) {
        any = false;
        int64_t first = 0;
        for (int64_t r = 0; r < s->ranks; r++) {
            any = simulate_rank(sim, r, first, out) || any;
            first += s->lists[r].count;
        }
    }
    double busy = 0;
    for (int64_t r = 0; r < s->ranks; r++) {
        if (sim->at[r] < s->lists[r].count)
            return fail_simulated_deadlock(sim);
        out->span = sim->now[r] > out->span ? sim->now[r] : out->span;
        for (int64_t i = 0; i < s->lists[r].count; i++)
            busy += sim->costs[s->lists[r].acts[i].chunk * s->ranks + r].of[s->lists[r].acts[i].kind];
    }
    out->idle_share = out->span > 0 ? 1 - busy / (out->span * (double)s->ranks) : 0;
    out->most_held = most_held(s);
    return TT_OK;
}

tt_status tt__schedule_simulate(const tt__schedule *s, const tt__stage_cost *costs, double transfer,
                                tt__simulated *out) {
    size_t cells = (size_t)(s->ranks * s->chunks * s->micros), ranks = (size_t)s->ranks;
    simulation sim = {.s = s, .costs = costs, .transfer = transfer};
    sim.forward_end = calloc(cells + 1, sizeof(double));
    sim.backward_end = calloc(cells + 1, sizeof(double));
    sim.at = calloc(ranks, sizeof *sim.at);
    sim.now = calloc(ranks, sizeof *sim.now);
    out->span = out->idle_share = 0;
    tt_status status = sim.forward_end && sim.backward_end && sim.at && sim.now
                           ? run_simulation(&sim, out)
                           : tt__fail(TT_ERR_MEMORY, "no memory to simulate a schedule");
    free(sim.forward_end);
    free(sim.backward_end);
    free(sim.at);
    free(sim.now);
    return status;
}
