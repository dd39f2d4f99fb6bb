/* The loader: an epoch's order from the sampler, cut into batches, which are made in the caller, or ahead by a crew.
 *
 * A batch is a job: which examples, and a buffer for them. Jobs are given out in order and taken in order, so what
 * workers do in between can't be seen in the result. */
#include "data/loader/loader.h"

#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/quarantine.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

enum { MOST_WORKERS = 1024, MOST_PREFETCH = 1024 };

static tt_status check_workers(const tt_loader_new_args *a) {
    if (a->workers < 0 || a->workers > MOST_WORKERS)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: workers: expected 0 to %d, got %d", MOST_WORKERS, a->workers);
    if (a->prefetch < 0 || a->prefetch > MOST_PREFETCH)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: prefetch: expected 0 to %d, got %d", MOST_PREFETCH,
                        a->prefetch);
    if (a->prefetch && !a->workers)
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: prefetch is %d, but without workers nothing is made ahead; set .workers",
                        a->prefetch);
    return TT_OK;
}

static tt_status check_batch_size(const tt_loader_new_args *a) {
    if (tt__is_batch_sampler(a->sampler))
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: expected a sampler of examples, got %s; give it as .batch_sampler, with a "
                        "batch_size of 0 and NULL as the sampler",
                        a->sampler->cls.name);
    if (a->batch_size < 1)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: batch_size: expected at least 1, got %" PRId64, a->batch_size);
    return TT_OK;
}

static tt_status check_batch_sampler(const tt_loader_new_args *a) {
    if (!tt__is_batch_sampler(a->batch_sampler))
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: .batch_sampler: expected a batch sampler, got %s",
                        a->batch_sampler->cls.name);
    if (a->sampler || a->batch_size || a->drop_last)
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: .batch_sampler stands for batch_size, sampler and .drop_last: expected 0, "
                        "NULL and false, got %" PRId64 ", %s and %s",
                        a->batch_size, a->sampler ? a->sampler->cls.name : "NULL", a->drop_last ? "true" : "false");
    return TT_OK;
}

static tt_status loader_check(const tt_loader_new_args *a) {
    if (!a->dataset)
        return tt__fail_argument("tt_loader_new: the data set is NULL");
    if (!a->sampler && !a->batch_sampler)
        return tt__fail_argument("tt_loader_new: the sampler (without one: tt_in_order() or tt_shuffled()) is NULL");
    TT__TRY(a->batch_sampler ? check_batch_sampler(a) : check_batch_size(a));
    return check_workers(a);
}

static tt_status choose_sampler(tt_loader *loader, tt_sampler *sampler) {
    int64_t n = loader->dataset->size;
    if (sampler == tt_in_order() || (sampler == tt_shuffled() && n == 0))
        loader->sampler = tt_sequential_sampler(n);
    else if (sampler == tt_shuffled())
        loader->sampler = tt_random_sampler(n);
    else
        loader->sampler = tt__sampler_hold(sampler);
    if (!loader->sampler)
        return tt_last_status();
    if (loader->sampler->dataset_size != n)
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: the sampler is for a data set of %" PRId64
                        " examples, but this one has %" PRId64,
                        loader->sampler->dataset_size, n);
    return TT_OK;
}

/* Set which sampler the loader uses, and how its order becomes batches. */
static tt_status choose_batches(tt_loader *loader, const tt_loader_new_args *a) {
    const tt_sampler *b = a->batch_sampler;
    loader->batch_size = !b ? a->batch_size : b->cuts ? b->batch_size : b->largest;
    loader->drop_last = b ? b->drop_last : a->drop_last;
    return choose_sampler(loader, !b ? a->sampler : b->cuts ? b->cuts : a->batch_sampler);
}

/* Allocate the batches' memory; they are never larger than the epoch, and no more are ahead than it has. */
static tt_status allocate_batches(tt_loader *loader, int64_t ahead) {
    int64_t n = loader->batch_size < loader->examples ? loader->batch_size : loader->examples;
    tt_tensor_spec x = loader->dataset->x;
    if (x.dtype == TT_U8 && !loader->collate)
        x.dtype = TT_F32;
    loader->order = tt__indices_new("tt_loader_new", loader->sampler->size);
    if (loader->sampler->sizes && loader->order)
        loader->sizes = tt__indices_new("tt_loader_new", loader->sampler->batches);
    bool enough = loader->order && (loader->sizes || !loader->sampler->sizes);
    return enough ? tt__batches_init(&loader->batches, n, ahead, &x, &loader->dataset->y) : tt_last_status();
}

static tt_status allocate_readers(tt_loader *loader, int64_t readers) {
    loader->reader = calloc((size_t)readers, sizeof *loader->reader);
    loader->job = calloc((size_t)loader->jobs, sizeof *loader->job);
    if (!loader->reader || !loader->job)
        return tt__fail(TT_ERR_MEMORY, "tt_loader_new: out of memory");
    while (loader->readers < readers)
        TT__TRY(tt__reader_init(&loader->reader[loader->readers++], loader->dataset, !loader->collate));
    return TT_OK;
}

int64_t tt__loader_examples(const tt_loader *loader, int64_t n) {
    if (loader->sampler->shards > 1)
        return tt__shard_examples(loader, n);
    return loader->drop_last ? n - n % loader->batch_size : n;
}

static tt_status loader_init(tt_loader *loader, const tt_loader_new_args *a) {
    loader->dataset = tt__dataset_hold(a->dataset);
    loader->wanted_in_a_row = loader->in_a_row = 1;
    loader->collate = a->collate;
    loader->collate_user = a->collate_user;
    loader->batches.pin = a->pin_memory && a->pin_memory->queue ? a->pin_memory : NULL;
    TT__TRY(choose_batches(loader, a));
    loader->examples = tt__loader_examples(loader, loader->sampler->size);
    int64_t ahead = (int64_t)a->workers * (a->prefetch ? a->prefetch : 2), batches = tt_loader_batches(loader);
    ahead = ahead < batches ? ahead : batches;
    loader->jobs = ahead ? ahead : 1;
    TT__TRY(allocate_batches(loader, ahead));
    TT__TRY(allocate_readers(loader, ahead ? a->workers : 1));
    return ahead ? tt__loader_crew_start(&loader->crew, a->workers, ahead, tt__loader_work, loader) : TT_OK;
}

/* ---- one batch ---- */

/* Examples of the batch that begins with number `at` of this epoch; `batch` is its own number. */
static int64_t batch_length(const tt_loader *loader, int64_t at, int64_t batch) {
    if (loader->sizes)
        return loader->sizes[batch];
    int64_t left = loader->examples - at;
    return left < loader->batch_size ? left : loader->batch_size;
}

/* Describe the next batch that nobody makes yet, in a slot. */
static tt_status job_prepare(tt_loader *loader, tt__loader_job *job) {
    bool shards = loader->sampler->shards > 1;
    int64_t at = loader->given;
    int64_t n = shards ? tt__shard_batch(loader, loader->batch, &at) : batch_length(loader, at, loader->batch);
    if (!loader->crew)
        TT__TRY(tt__dataset_normalization(loader->dataset, &loader->how));
    *job = (tt__loader_job){.indices = loader->order + at, .n = n, .epoch = loader->epoch, .how = loader->how};
    TT__TRY(tt__batches_choose(&loader->batches, &job->buffer));
    loader->given += n;
    loader->batch++;
    return TT_OK;
}

/* Give the workers jobs until all slots are taken. */
static tt_status give_jobs(tt_loader *loader) {
    int64_t slot = 0;
    while (loader->given < loader->examples && (slot = tt__loader_crew_free_slot(loader->crew)) >= 0) {
        TT__TRY(job_prepare(loader, &loader->job[slot]));
        tt__loader_crew_add(loader->crew);
    }
    return TT_OK;
}

/* Get the oldest batch once it is made. Without workers there is only job 0, which the caller does. */
static tt_status finished_job(tt_loader *loader, tt__loader_job **out) {
    int64_t slot = 0;
    if (loader->crew) {
        TT__TRY(give_jobs(loader));
        slot = tt__loader_crew_take(loader->crew);
    } else {
        TT__TRY(job_prepare(loader, &loader->job[0]));
        tt__loader_work(loader, 0, 0);
    }
    *out = &loader->job[slot];
    return TT_OK;
}

static tt_status lend_job(tt_loader *loader, tt__loader_job *job) {
    tt__batches *b = &loader->batches;
    if (job->error.status) {
        tt__error_restore(&job->error);
        return job->error.status;
    }
    if (!loader->collate)
        return tt__batches_lend(b, job->buffer, job->n);
    b->lent_x = job->x;
    b->lent_y = job->y;
    job->x = job->y = NULL;
    job->buffer->taken = false;
    return TT_OK;
}

/* Lend the next batch, and let the workers go on while the caller uses it. */
static tt_status make_batch(tt_loader *loader, tt_batch *batch) {
    tt__loader_job *job = NULL;
    TT__TRY(finished_job(loader, &job));
    TT__TRY(lend_job(loader, job));
    *batch = (tt_batch){loader->batches.lent_x, loader->batches.lent_y, job->n, job->indices};
    loader->at += job->n;
    loader->lent++;
    return loader->crew ? give_jobs(loader) : TT_OK;
}

/* ---- epochs ---- */

/* The epoch is over: forget the batches that are ahead. */
static void end_loader_epoch(tt_loader *loader) {
    loader->at = loader->given = loader->batch = loader->lent = 0;
    loader->begun = false;
    if (loader->crew)
        tt__loader_crew_cancel(loader->crew);
    for (int64_t i = 0; i < loader->jobs; i++) {
        tt__loader_job *job = &loader->job[i];
        tt__tensor_take_back(job->x);
        tt__tensor_take_back(job->y);
        job->x = job->y = NULL;
    }
    for (int64_t i = 0; i < loader->batches.count; i++)
        loader->batches.buffer[i].taken = false;
}

/* End the epoch with an error, which further calls repeat. It is the open scope's first error, too, so that a step with
 * this batch's NULLs reports it. */
static int end_with_error(tt_loader *loader, tt_status status) {
    tt__batches_take_back(&loader->batches);
    if (!loader->error.status) {
        loader->error.status = status;
        snprintf(loader->error.text, sizeof loader->error.text, "%s", tt_last_error());
    }
    tt__tensor_fail(loader->error.status, "%s", loader->error.text);
    return -1;
}

tt_status tt__loader_clock_epoch(tt_loader *loader) {
    loader->began_ns = tt__now_ns();
    loader->waited_ns = 0;
    return tt__dataset_normalization(loader->dataset, &loader->how);
}

static tt_status begin_epoch(tt_loader *loader) {
    TT__TRY(tt__loader_clock_epoch(loader));
    TT__TRY(tt__sampler_begin(loader->sampler, loader->order));
    if (loader->sizes)
        memcpy(loader->sizes, loader->sampler->sizes, (size_t)loader->sampler->batches * sizeof *loader->sizes);
    loader->epoch = loader->sampler->epoch_said ? loader->sampler->epoch : loader->epochs;
    loader->epochs++;
    loader->share = loader->sampler->now;
    loader->in_a_row = loader->wanted_in_a_row;
    loader->examples = tt__loader_examples(loader, loader->share);
    loader->begun = true;
    return TT_OK;
}

static int next_batch(tt_loader *loader, tt_batch *batch) {
    tt_status status = loader->error.status;
    tt__batches_take_back(&loader->batches);
    if (!status && !loader->begun)
        status = begin_epoch(loader);
    if (!status && loader->at >= loader->examples) {
        end_loader_epoch(loader);
        return 0;
    }
    if (!status)
        status = make_batch(loader, batch);
    return status ? end_with_error(loader, status) : 1;
}

/* Get the next batch, and measure the time. */
static int timed_batch(tt_loader *loader, tt_batch *batch) {
    if (loader->crew && tt__crew_is_elsewhere(loader->crew)) {
        tt__tensor_fail(TT_ERR_STATE, "tt_loader_next: this process was forked from the one whose threads make the "
                                      "batches, and does not have them; make a loader of its own");
        return -1;
    }
    int64_t begin = tt__now_ns();
    int result = next_batch(loader, batch);
    loader->seen_ns = tt__now_ns();
    loader->waited_ns += loader->seen_ns - begin;
    return result;
}

int tt_loader_next_with(tt_loader *loader, tt_batch *batch, size_t size) {
    tt_batch next = {0};
    int result = -1;
    if (loader && batch)
        result = timed_batch(loader, &next);
    else if (batch && tt_last_status())
        tt__tensor_fail(tt_last_status(), "%s", tt_last_error()); /* why the loader could not be made */
    else
        tt__tensor_fail(TT_ERR_INVALID, "tt_loader_next: the %s is NULL", batch ? "loader" : "batch");
    if (batch) {
        if (result != 1)
            next = (tt_batch){0};
        memset(batch, 0, size);
        memcpy(batch, &next, size < sizeof next ? size : sizeof next);
    }
    return result;
}

void tt_loader_restart(tt_loader *loader) {
    if (!loader || (loader->crew && tt__crew_is_elsewhere(loader->crew)))
        return;
    end_loader_epoch(loader);
    loader->error.status = TT_OK;
}

/* A batch has at least one example: loader_check() sees to it. */
static int64_t batches_of(const tt_loader *loader, int64_t examples) {
    int64_t size = loader->batch_size > 0 ? loader->batch_size : 1;
    return examples / size + (examples % size != 0);
}

int64_t tt_loader_batches(const tt_loader *loader) {
    if (!loader)
        return 0;
    if (loader->sizes)
        return loader->sampler->batches;
    if (loader->sampler->shards > 1)
        return tt__shard_batches(loader, loader->sampler->size);
    return batches_of(loader, tt__loader_examples(loader, loader->sampler->size));
}

bool tt__loader_order_is_pure(const tt_loader *loader) { return loader->sampler->pure; }

int64_t tt_loader_batches_left(const tt_loader *loader) {
    if (!loader || !loader->begun)
        return tt_loader_batches(loader);
    if (loader->sampler->shards > 1)
        return tt__shard_batches(loader, loader->share) - loader->lent;
    if (!loader->sizes)
        return batches_of(loader, loader->examples - loader->at);
    int64_t left = 0;
    for (int64_t at = 0, batch = 0; at < loader->examples; at += loader->sizes[batch++])
        left += at >= loader->at;
    return left;
}

double tt_loader_waited(const tt_loader *loader) {
    int64_t elapsed = loader ? loader->seen_ns - loader->began_ns : 0;
    return elapsed > 0 ? (double)loader->waited_ns / (double)elapsed : 0;
}

/* ---- another share ---- */

/* Make buffers for the batches of a larger share, if the present ones are cut to a smaller one. */
static tt_status enlarge_batches(tt_loader *loader) {
    int64_t rows = loader->batch_size < loader->examples ? loader->batch_size : loader->examples;
    tt_tensor_spec x = loader->batches.x, y = loader->batches.y;
    if (rows <= loader->batches.rows)
        return TT_OK;
    tt__batches_take_back(&loader->batches);
    tt__batches_free(&loader->batches);
    loader->batches = (tt__batches){.pin = loader->batches.pin};
    return tt__batches_init(&loader->batches, rows, loader->crew ? loader->jobs : 0, &x, &y);
}

tt_status tt__loader_share(tt_loader *loader, int64_t replicas, int64_t rank) {
    tt_sampler *s = loader->sampler;
    if (!s->share)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "a loader of %s: expected the sampler that ranks share, "
                        "tt_distributed_sampler()",
                        s->cls.name);
    int64_t *order = tt__indices_new("a loader", tt__sampler_room(s, replicas));
    if (!order)
        return tt_last_status();
    tt_loader_restart(loader);
    tt_status status = tt__sampler_share(s, replicas, rank);
    if (status) {
        free(order);
        return status;
    }
    free(loader->order);
    loader->order = order;
    loader->examples = tt__loader_examples(loader, s->size);
    return enlarge_batches(loader);
}

tt_status tt__loader_pin(tt_loader *loader, const tt_device *device) {
    if (!loader || loader->batches.pin || !device->queue || (loader->crew && tt__crew_is_elsewhere(loader->crew)))
        return TT_OK;
    return tt__batches_pin(&loader->batches, device);
}

/* ---- life ---- */

static void loader_end(tt_loader *loader) {
    tt__loader_crew_end(loader->crew);
    loader->crew = NULL;
    if (loader->job)
        end_loader_epoch(loader);
    tt__loader_state_free(&loader->state);
    tt__batches_free(&loader->batches);
    for (int64_t i = 0; i < loader->readers; i++)
        tt__reader_free(&loader->reader[i]);
    tt__sampler_release(loader->sampler);
    tt__dataset_release(loader->dataset);
    free(loader->order);
    free(loader->sizes);
    free(loader->reader);
    free(loader->job);
    tt__quarantine(loader, sizeof *loader, free);
}

tt_loader *tt_loader_new_with(const tt_loader_new_args *args, size_t size) {
    tt_loader_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (loader_check(&a))
        return NULL;
    tt_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return tt__fail_null(TT_ERR_MEMORY, "tt_loader_new: out of memory");
    if (!loader_init(loader, &a))
        return loader;
    loader_end(loader);
    return NULL;
}

void tt_loader_free(tt_loader *loader) {
    if (loader && !tt__freed_before("tt_loader_free", loader))
        loader_end(loader);
}
