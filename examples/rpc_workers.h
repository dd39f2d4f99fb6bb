/* What the examples of RPC share: how processes become workers and end, what they learn, tensors in lists. A program
 * includes this once, behind flags.h. */
#ifndef EXAMPLES_RPC_WORKERS_H
#define EXAMPLES_RPC_WORKERS_H

#include "job.h"

/* The built-in data: so many digits. */
enum { DIGITS = 2000, DIGITS_SEED = 1 };

/* Digits in a folder, in MNIST's files; NULL: drawn ones. */
static inline tt_dataset *open_digits(const char *folder) {
    tt_dataset *digits = folder ? tt_mnist(folder, true) : tt_digits(DIGITS, DIGITS_SEED);
    if (!digits || !tt_dataset_normalize(digits, 0.1307, 0.3081))
        return digits;
    tt_dataset_free(digits);
    return NULL;
}

/* Trainer `trainer`'s batches of them, of so many trainers. The caller frees it. */
static inline tt_loader *open_batches(const char *folder, int64_t batch_size, int trainers, int trainer) {
    tt_dataset *digits = open_digits(folder);
    if (!digits)
        return NULL;
    tt_sampler *sampler = tt_distributed_sampler(tt_dataset_size(digits), trainers, trainer);
    tt_loader *loader = tt_loader_new(digits, batch_size, sampler, .drop_last = true);
    tt_sampler_free(sampler); /* the loader holds both */
    tt_dataset_free(digits);
    return loader;
}

/* The next batch; behind the last one comes the first. */
static inline tt_status next_batch(tt_loader *loader, tt_batch *b) {
    for (int tries = 0; tries < 2; tries++) {
        int found = tt_loader_next(loader, b);
        if (found)
            return found > 0 ? TT_OK : tt_last_status();
    }
    return tt_fail(TT_ERR_INVALID, "--batch-size: a trainer has fewer digits than that");
}

/* Join the job, whose ranks must be `least` to `most`. */
static inline tt_status join_ranks(tt_group **world, int least, int most) {
    tt_status status = join_job(world);
    int ranks = status ? 0 : tt_get_world_size(*world);
    if (status || (ranks >= least && ranks <= most))
        return status;
    return tt_fail(TT_ERR_INVALID, "expected %d%s ranks, got %d: tutti run --nproc-per-node=%d %s", least,
                   most > least ? " or more" : "", ranks, least, program_name);
}

/* Become a worker: rank 0 is called `first`, the others `others`1, `others`2, ... From here on others call this
 * process's functions, so that what they work on is there already. */
static inline tt_status become_worker(tt_rpc **rpc, tt_group *world, const char *first, const char *others) {
    char name[32];
    int rank = tt_get_rank(world);
    snprintf(name, sizeof name, rank ? "%s%d" : "%s", rank ? others : first, rank);
    return tt_rpc_init(rpc, name, .group = world);
}

/* Wait until all `count` calls are done, and free their futures, of which some may be NULL after a failure. Returns
 * `status` if that is one, else the error of the first call that failed. */
static inline tt_status wait_for_calls(tt_future **calls, int64_t count, tt_status status) {
    tt_future *all = NULL;
    if (!status)
        status = tt_future_collect_all(&all, calls, count);
    if (!status)
        status = tt_future_wait(all, 0);
    tt_future_free(all);
    for (int64_t i = 0; i < count; i++)
        tt_future_free(calls[i]);
    return status;
}

/* End after `status`: on success this worker serves the others until all are here. Returns what main() does. */
static inline int end_worker(tt_rpc *rpc, tt_group *world, tt_status status) {
    if (status)
        tt_report();
    tt_status ended = tt_rpc_shutdown(rpc, .at_once = status != TT_OK);
    if (!ended)
        ended = flush_output();
    if (ended && !status)
        tt_report();
    tt_destroy_process_group(world);
    return status || ended ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
