/* Batches of virtual ranks: the shares of a loader's order (distributed_sampler.c) take turns. Each gives one batch a
 * turn, or k in a row. Share i of n indices has one more than the others if i < n mod shares. */
#include "data/loader/loader.h"

/* Examples of share i that come in batches. */
static int64_t share_length(const tt_loader *loader, int64_t n, int64_t i) {
    int64_t shards = loader->sampler->shards, length = n / shards + (i < n % shards);
    return loader->drop_last ? length - length % loader->batch_size : length;
}

/* Where share i of n indices begins. */
static int64_t share_begin(const tt_loader *loader, int64_t n, int64_t i) {
    int64_t shards = loader->sampler->shards, more = n % shards;
    return n / shards * i + (i < more ? i : more);
}

int64_t tt__shard_examples(const tt_loader *loader, int64_t n) {
    int64_t examples = 0;
    for (int64_t i = 0; i < loader->sampler->shards; i++)
        examples += share_length(loader, n, i);
    return examples;
}

int64_t tt__shard_batches(const tt_loader *loader, int64_t n) {
    int64_t batches = 0;
    for (int64_t i = 0; i < loader->sampler->shards; i++)
        batches += (share_length(loader, n, i) + loader->batch_size - 1) / loader->batch_size;
    return batches;
}

void tt__shard_in_a_row(tt_loader *loader, int64_t batches) { loader->wanted_in_a_row = batches; }

/* Return which share batch number `batch` is of; *round := how many batches of that share come before it. With one in a
 * row, only the first shares may have one batch more than the others, so the last round is theirs. */
static int64_t share_of_batch(const tt_loader *loader, int64_t batch, int64_t *round) {
    const int64_t shards = loader->sampler->shards, most = loader->in_a_row;
    const int64_t group = batch / (shards * most), place = batch - group * shards * most;
    const int64_t left = tt__shard_batches(loader, loader->share) / shards - group * most;
    const int64_t row = most == 1 || left >= most ? most : left;
    *round = group * most + place % row;
    return place / row;
}

int64_t tt__shard_batch(const tt_loader *loader, int64_t batch, int64_t *at) {
    int64_t round, shard = share_of_batch(loader, batch, &round), done = round * loader->batch_size;
    int64_t left = share_length(loader, loader->share, shard) - done;
    *at = share_begin(loader, loader->share, shard) + done;
    return left < loader->batch_size ? left : loader->batch_size;
}

int64_t tt__shard_position(const tt_loader *loader) {
    const tt_sampler *s = loader->sampler;
    bool all = loader->lent == tt__shard_batches(loader, loader->share);
    int64_t rounds = (loader->lent + (all ? s->shards - 1 : 0)) / s->shards,
            longest = share_length(loader, loader->share, 0);
    int64_t of_each = rounds * loader->batch_size;
    return s->visited + s->replicas * (of_each < longest ? of_each : longest);
}
