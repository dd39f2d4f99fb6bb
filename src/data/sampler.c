/* Which examples a rank visits, in which order: torch.utils.data.DistributedSampler.
 *
 * N examples, R replicas (ranks). All ranks draw the same order of the N from seed + epoch; position p of it goes to rank p mod R. So that every rank
 * gets the same number, either the tail is dropped, or positions past the end start again from the front. */
#include <tutti/data.h>

#include "base/args.h"
#include "base/error.h"
#include "data/dataset.h"
#include "tensor/generator.h"

#include <inttypes.h>
#include <stdlib.h>

struct tt_sampler {
    int64_t dataset_size, replicas, rank;
    bool shuffle;
    uint64_t seed;
    int64_t epoch;
    int64_t size;     /* examples per rank */
    int64_t *indices; /* (size) this rank's, up to date unless `stale` */
    int64_t *order;   /* (dataset_size) all ranks'; NULL without shuffle */
    bool stale;
};

static tt_status check(const tt_distributed_sampler_args *a) {
    static const char name[] = "tt_distributed_sampler";
    if (a->dataset_size < 1 || a->dataset_size > INT64_MAX / 16)
        return tt__fail(TT_ERR_INVALID, "%s: dataset_size: expected at least 1, got %" PRId64 "%s", name,
                        a->dataset_size,
                        a->dataset_size ? "" : " (also the size of a data set that could not be made)");
    if (a->num_replicas < 0)
        return tt__fail(TT_ERR_INVALID, "%s: num_replicas: expected at least 1, got %d", name, a->num_replicas);
    int replicas = a->num_replicas ? a->num_replicas : 1;
    if (a->rank < 0 || a->rank >= replicas)
        return tt__fail(TT_ERR_INVALID, "%s: rank: expected 0 to %d (num_replicas is %d), got %d", name, replicas - 1,
                        replicas, a->rank);
    return TT_OK;
}

static int64_t examples_per_rank(int64_t n, int64_t replicas, bool drop_last) {
    int64_t whole = n / replicas;
    return n % replicas && !drop_last ? whole + 1 : whole;
}

static int64_t *indices_new(int64_t n) { return malloc(n ? (size_t)n * sizeof(int64_t) : 1); }

tt_sampler *tt_distributed_sampler_with(const tt_distributed_sampler_args *args, size_t size) {
    tt_distributed_sampler_args a;
    TT__ARGS_COPY(a, args, size);
    if (check(&a))
        return NULL;
    tt_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return tt__fail_null(TT_ERR_MEMORY, "tt_distributed_sampler: out of memory");
    sampler->dataset_size = a.dataset_size;
    sampler->replicas = a.num_replicas ? a.num_replicas : 1;
    sampler->rank = a.rank;
    sampler->shuffle = !a.no_shuffle;
    sampler->seed = a.seed;
    sampler->stale = true;
    sampler->size = examples_per_rank(a.dataset_size, sampler->replicas, a.drop_last);
    sampler->indices = indices_new(sampler->size);
    sampler->order = sampler->shuffle ? indices_new(a.dataset_size) : NULL;
    if (!sampler->indices || (sampler->shuffle && !sampler->order)) {
        tt_sampler_free(sampler);
        return tt__fail_null(TT_ERR_MEMORY, "tt_distributed_sampler: no memory for the order of %" PRId64 " examples",
                             a.dataset_size);
    }
    return sampler;
}

void tt_sampler_set_epoch(tt_sampler *sampler, int64_t epoch) {
    if (!sampler || sampler->epoch == epoch)
        return;
    sampler->epoch = epoch;
    sampler->stale = true;
}

int64_t tt__sampler_dataset_size(const tt_sampler *sampler) { return sampler->dataset_size; }

int64_t tt_sampler_size(const tt_sampler *sampler) { return sampler ? sampler->size : 0; }

const int64_t *tt_sampler_indices(tt_sampler *sampler) {
    if (!sampler || !sampler->stale)
        return sampler ? sampler->indices : NULL;
    if (sampler->shuffle) {
        tt_generator g;
        tt__generator_init(&g, sampler->seed + (uint64_t)sampler->epoch);
        tt_randperm(sampler->order, sampler->dataset_size, &g);
    }
    for (int64_t i = 0; i < sampler->size; i++) {
        int64_t at = (sampler->rank + i * sampler->replicas) % sampler->dataset_size;
        sampler->indices[i] = sampler->shuffle ? sampler->order[at] : at;
    }
    sampler->stale = false;
    return sampler->indices;
}

uint64_t tt_sampler_seed(const tt_sampler *sampler) { return sampler ? sampler->seed : 0; }

void tt_sampler_free(tt_sampler *sampler) {
    if (!sampler)
        return;
    free(sampler->indices);
    free(sampler->order);
    free(sampler);
}
