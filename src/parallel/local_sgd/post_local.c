/* Post-local SGD: at first, gradients are averaged over all ranks in every step. From a given step on they are averaged
 * over the ranks of a host only, and every few steps parameters are averaged over all ranks.
 *
 * T. Lin, S. Stich, K. Patel, M. Jaggi: Don't Use Large Mini-Batches, Use Local SGD. ICLR 2020. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"
#include "comm/rendezvous/rendezvous.h"
#include "parallel/local_sgd/averager.h"
#include "reducer/reducer.h"

typedef struct post_local post_local;

/* The state of the wrapper's hook. Wrapper and averager share it: the one that is freed last frees it. */
typedef struct local_gradients {
    int holders;
    const post_local *averager; /* NULL: freed */
    bool local;                 /* whether averages were local when it was freed */
    tt_group *group, *subgroup;
    bool owns_subgroup, nothing; /* nothing: a subgroup of one rank averages nothing */
} local_gradients;

struct post_local {
    tt_model_averager base;
    int64_t start, period;
    local_gradients *gradients;
};

static bool post_local_due(const tt_model_averager *a) {
    const post_local *p = (const post_local *)a;
    return a->steps >= p->start && (a->steps - p->start) % p->period == 0;
}

/* ---- the hook ---- */

static bool is_local(const post_local *p) { return p->base.steps >= p->start; }

static bool gradients_are_local(const local_gradients *g) { return g->averager ? is_local(g->averager) : g->local; }

static tt_status local_next(void *state, const tt_bucket *bucket, int stage, tt_work **work) {
    const local_gradients *g = state;
    const bool local = gradients_are_local(g);
    if (stage > 0 || (local && g->nothing))
        return TT_OK;
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, local ? g->subgroup : bucket->group, bucket->data,
                                      bucket->count, bucket->dtype, TT_AVG, .work = work,
                                      .file = "the averaging of gradients (tt_post_local_sgd)", TT__BUCKET_ON(bucket)));
}

static tt_group *local_told_over(void *state) {
    const local_gradients *g = state;
    if (!gradients_are_local(g))
        return g->group;
    return g->nothing ? NULL : g->subgroup;
}

static tt_status local_attach(void *state, const tt_bucket *buckets, int64_t count) {
    const local_gradients *g = state;
    return !count || buckets[0].group == g->group
               ? TT_OK
               : tt__fail(TT_ERR_STATE, "tt_post_local_sgd belongs to the group that it was made on");
}

static const tt_comm_hook local_hook = {.size = sizeof local_hook,
                                        .name = "post_local_sgd",
                                        .next = local_next,
                                        .attach = local_attach,
                                        .told_over = local_told_over,
                                        .takes_devices = true};

static void let_gradients_go(void *state) {
    local_gradients *g = state;
    if (--g->holders)
        return;
    if (g->owns_subgroup)
        tt_destroy_process_group(g->subgroup);
    free(g);
}

static void post_local_end(tt_model_averager *a) {
    post_local *p = (post_local *)a;
    if (!p->gradients)
        return;
    p->gradients->local = is_local(p);
    p->gradients->averager = NULL;
    let_gradients_go(p->gradients);
}

/* Abort the subgroup, too, whose ranks may still be in a pass. */
static void tell_both_groups(const tt_model_averager *a) {
    const post_local *p = (const post_local *)a;
    tt__abort_with_error(p->gradients->subgroup);
    tt__abort_with_error(a->group);
}

static const tt__averager_class post_local_class = {
    .name = "tt_post_local_sgd",
    .doing = "the averaging of parameters (tt_post_local_sgd)",
    .size = sizeof(post_local),
    .due = post_local_due,
    .tell = tell_both_groups,
    .end = post_local_end,
};

/* ---- making ---- */

static tt_status check_post_local(const tt_post_local_sgd_args *a) {
    const char *who = post_local_class.name;
    if (a->start < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a start of at least 0, got %" PRId64, who, a->start);
    if (a->period < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a period of 1 step or more, got %" PRId64, who, a->period);
    return TT_OK;
}

/* *out := a group of the ranks of this rank's host. */
static tt_status split_by_host(tt_group **out, tt_group *group) {
    enum { HOST = 128 };
    const char *who = post_local_class.name;
    const int rank = tt_get_rank(group), world = tt_get_world_size(group);
    char mine[HOST] = "", *hosts = calloc((size_t)world, HOST);
    if (!hosts)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the names of %d hosts", who, world);
    tt_status status = tt__host_id(mine, sizeof mine);
    if (!status)
        status = tt__group_gather(group, mine, hosts, HOST, TT_U8, who);
    int color = 0;
    while (!status && memcmp(hosts + (size_t)color * HOST, hosts + (size_t)rank * HOST, HOST) != 0)
        color++;
    free(hosts);
    return status ? status
                  : tt_group_split_with(
                        TT_ARGS(tt_group_split_args, .out = out, .group = group, .color = color, .file = who));
}

static tt_status make_gradients(post_local *p, const tt_post_local_sgd_args *a) {
    local_gradients *g = p->gradients = calloc(1, sizeof *g);
    if (!g)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the averager", post_local_class.name);
    *g = (local_gradients){1, p, false, p->base.group, a->subgroup, !a->subgroup, a->no_local_averaging};
    return a->subgroup ? TT_OK : split_by_host(&g->subgroup, p->base.group);
}

static tt_status hook_wrapper(post_local *p, const tt_post_local_sgd_args *a) {
    char settings[128];
    snprintf(settings, sizeof settings, "from step %" PRId64 " on%s", a->start,
             a->no_local_averaging ? " without averaging" : "");
    p->gradients->holders++;
    return tt_ddp_register_comm_hook_with(TT_ARGS(tt_ddp_register_comm_hook_args, .ddp = a->ddp, .hook = &local_hook,
                                                  .state = p->gradients, .settings = settings,
                                                  .destroy = let_gradients_go));
}

static tt_status begin_post_local(tt_model_averager *made, const tt_post_local_sgd_args *a) {
    post_local *p = (post_local *)made;
    p->start = a->start;
    p->period = a->period;
    TT__TRY(make_gradients(p, a));
    return hook_wrapper(p, a);
}

tt_status tt_post_local_sgd_with(const tt_post_local_sgd_args *given, size_t size) {
    tt_post_local_sgd_args args;
    char texts[4][64];
    TT__ARGS_COPY(args, given, size);
    if (args.out)
        *args.out = NULL;
    const tt_reducer *reducer = tt_ddp_reducer(args.ddp);
    if (!reducer)
        return tt__fail(TT_ERR_INVALID, "%s: expected a wrapper that tt_ddp() made", post_local_class.name);
    snprintf(texts[0], sizeof texts[0], "start %" PRId64, args.start);
    snprintf(texts[1], sizeof texts[1], "period %" PRId64, args.period);
    snprintf(texts[2], sizeof texts[2], ".subgroup %s", args.subgroup ? "given" : "not given");
    snprintf(texts[3], sizeof texts[3], ".no_local_averaging %d", args.no_local_averaging);
    tt__averager_plan plan = {&post_local_class,
                              args.out,
                              reducer->group,
                              tt_module_parameters(args.ddp),
                              (const char *const[]){texts[0], texts[1], texts[2], texts[3]},
                              4,
                              NULL,
                              {.group = NULL}};
    TT__TRY(tt__averager_agree(&plan));
    TT__TRY(check_post_local(&args));
    tt_model_averager *a;
    tt_status status = tt__averager_make(&plan, &a);
    if (!status)
        status = tt__flat_take_rank_0(&a->flat, plan.cls->doing);
    if (!status)
        status = begin_post_local(a, &args);
    return tt__averager_finish(&plan, a, status);
}
