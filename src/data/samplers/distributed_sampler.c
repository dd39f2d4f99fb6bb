/* The examples that a rank visits, and their order: torch.utils.data.DistributedSampler.
 *
 * N examples, R replicas (ranks). All ranks draw the same order of the N from seed + epoch; position p of it goes to
 * rank p mod R. So that every rank gets the same number, either the tail is dropped, or positions past the end start
 * again from the front; or, with `exact`, neither happens, and some ranks have one more.
 *
 * An epoch that is resumed after V examples of the order goes on at position V, whatever R was before: position V + p
 * goes to rank p mod R.
 *
 * With virtual ranks these are the R replicas, and a rank has the shares of several neighbours, one after the other:
 * the loader takes a batch of each in turn. */
#include "data/samplers/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/random/generator.h"

#include <stdlib.h>

typedef struct share {
    int64_t dataset_size, replicas;
    int64_t first, count; /* the first replica whose share is here, and how many are */
    bool is_virtual;
    bool drop_last, exact;
    uint64_t seed;
    int64_t visited;   /* V */
    int64_t *everyone; /* (dataset_size) the order of all ranks; NULL without shuffle */
} share;

static int64_t size_of_one(const share *s, int64_t replica) {
    int64_t left = s->dataset_size > s->visited ? s->dataset_size - s->visited : 0, whole = left / s->replicas;
    if (s->exact)
        return whole + (replica < left % s->replicas);
    return whole + (left % s->replicas && !s->drop_last);
}

static int64_t share_size(void *user) {
    const share *s = user;
    int64_t size = 0;
    for (int64_t i = 0; i < s->count; i++)
        size += size_of_one(s, s->first + i);
    return size;
}

static int64_t share_rest(void *user, int64_t visited) {
    ((share *)user)->visited = visited;
    return share_size(user);
}

static void share_among(void *user, int64_t replicas, int64_t rank) {
    share *s = user;
    if (s->is_virtual) {
        s->first = s->replicas * rank / replicas;
        s->count = s->replicas * (rank + 1) / replicas - s->first;
        return;
    }
    s->replicas = replicas;
    s->first = rank;
}

static tt_status share_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    const share *s = user;
    if (s->everyone) {
        tt_generator g;
        tt__generator_init(&g, s->seed + (uint64_t)epoch);
        tt_randperm(s->everyone, s->dataset_size, &g);
    }
    for (int64_t replica = s->first, to = 0; replica < s->first + s->count; replica++) {
        int64_t size = size_of_one(s, replica);
        for (int64_t i = 0; i < size && to < n; i++) {
            int64_t at = (s->visited + replica + i * s->replicas) % s->dataset_size;
            indices[to++] = s->everyone ? s->everyone[at] : at;
        }
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
    if (a->virtual_ranks && a->virtual_ranks < a->num_replicas)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least as many .virtual_ranks as ranks (%d), got %d", who,
                        a->num_replicas, a->virtual_ranks);
    if (a->exact && a->drop_last)
        return tt__fail(TT_ERR_INVALID, "%s: expected .exact, which leaves out nothing, or .drop_last, got both", who);
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
    *s = (share){.dataset_size = a.dataset_size,
                 .replicas = a.virtual_ranks ? a.virtual_ranks : a.num_replicas,
                 .first = a.rank,
                 .count = 1,
                 .is_virtual = a.virtual_ranks,
                 .drop_last = a.drop_last,
                 .exact = a.exact,
                 .seed = a.seed,
                 .everyone = a.no_shuffle ? NULL : tt__indices_new(who, a.dataset_size)};
    if (a.virtual_ranks)
        share_among(s, a.num_replicas, a.rank);
    if (!s->everyone && !a.no_shuffle) {
        share_destroy(s);
        return NULL;
    }
    tt_sampler *sampler = tt__sampler_new(who, &cls, s, a.dataset_size);
    if (!sampler)
        return NULL;
    sampler->seed = a.seed;
    sampler->pure = true;
    sampler->replicas = s->replicas;
    sampler->virtual_ranks = a.virtual_ranks;
    sampler->shards = s->count;
    sampler->exact = a.exact;
    sampler->rest = share_rest;
    sampler->share = share_among;
    return sampler;
}
