/* The examples that a rank visits, and their order: torch.utils.data.DistributedSampler.
 *
 * N examples, R replicas (ranks). All ranks draw the same order of the N from seed + epoch; position p of it goes to
 * rank p mod R. So that every rank gets the same number, either the tail is dropped, or positions past the end start
 * again from the front. */
#include "data/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/generator.h"

#include <stdlib.h>

typedef struct share {
    int64_t dataset_size, replicas, rank;
    bool drop_last;
    uint64_t seed;
    int64_t *everyone; /* (dataset_size) the order of all ranks; NULL without shuffle */
} share;

static int64_t share_size(void *user) {
    const share *s = user;
    int64_t whole = s->dataset_size / s->replicas;
    return s->dataset_size % s->replicas && !s->drop_last ? whole + 1 : whole;
}

static tt_status share_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const share *s = user;
    if (s->everyone) {
        tt_generator g;
        tt__generator_init(&g, s->seed + (uint64_t)epoch);
        tt_randperm(s->everyone, s->dataset_size, &g);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (s->rank + i * s->replicas) % s->dataset_size;
        indices[i] = s->everyone ? s->everyone[at] : at;
    }
    return TT_OK;
}

static void share_destroy(void *user) {
    share *s = user;
    free(s->everyone);
    free(s);
}

static tt_status check_replicas(const char *who, const tt_distributed_sampler_args *a) {
    TT__TRY(tt__check_dataset_size(who, a->dataset_size));
    if (a->num_replicas < 1)
        return tt__fail(TT_ERR_INVALID, "%s: num_replicas: expected at least 1, got %d", who, a->num_replicas);
    if (a->rank < 0 || a->rank >= a->num_replicas)
        return tt__fail(TT_ERR_INVALID, "%s: rank: expected 0 to %d (num_replicas is %d), got %d", who,
                        a->num_replicas - 1, a->num_replicas, a->rank);
    return TT_OK;
}

tt_sampler *tt_distributed_sampler_with(const tt_distributed_sampler_args *args, size_t size) {
    static const char who[] = "tt_distributed_sampler";
    static const tt_sampler_class cls = {
        .name = "a distributed sampler", .size = share_size, .order = share_order, .destroy = share_destroy};
    tt_distributed_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_replicas(who, &a))
        return NULL;
    share *s = calloc(1, sizeof *s);
    if (!s)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *s = (share){a.dataset_size, a.num_replicas, a.rank,
                 a.drop_last,    a.seed,         a.no_shuffle ? NULL : tt__indices_new(who, a.dataset_size)};
    if (!s->everyone && !a.no_shuffle) {
        share_destroy(s);
        return NULL;
    }
    tt_sampler *sampler = tt__sampler_new(who, &cls, s, a.dataset_size);
    if (sampler)
        sampler->seed = a.seed;
    return sampler;
}
