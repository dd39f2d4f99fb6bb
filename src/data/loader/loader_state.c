/* Where a loader stands, as named tensors, and back.
 *
 * A position is a number of examples that all ranks together have visited in the epoch. An order that depends on the
 * epoch alone (DistributedSampler's) is made again, and dealt from that position on among the ranks that there are now;
 * any other order is part of the state. So are the batch sizes of a program's own batch sampler. */
#include "base/error.h"
#include "data/loader/loader.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"
#include "tensor/random/generator.h"

#include <inttypes.h>
#include <string.h>

/* The numbers of a state; -1 in sampler_epoch: the sampler was never told one. */
typedef struct loader_numbers {
    int64_t dataset_size, seed, sampler_epoch, epochs, epoch, begun, position;
} loader_numbers;

enum { NUMBERS = sizeof(loader_numbers) / sizeof(int64_t) };
static const char *const number_names[NUMBERS] = {"dataset_size", "seed",  "sampler_epoch", "epochs",
                                                  "epoch",        "begun", "position"};

/* ---- saving ---- */

static tt_status state_add(tt__loader_state *state, const char *name, tt_tensor *x) {
    if (!x)
        return tt_last_status();
    TT__TRY(tt__tensor_adopt(x, "a loader's state"));
    state->names[state->list.count] = name;
    state->tensors[state->list.count++] = x;
    return TT_OK;
}

static int64_t loader_position(const tt_loader *loader) {
    const tt_sampler *s = loader->sampler;
    if (s->shards > 1)
        return tt__shard_position(loader);
    return s->replicas ? s->visited + loader->at * s->replicas : loader->at;
}

static loader_numbers numbers_of(const tt_loader *loader) {
    const tt_sampler *s = loader->sampler;
    return (loader_numbers){.dataset_size = s->dataset_size,
                            .seed = (int64_t)s->seed,
                            .sampler_epoch = s->epoch_said ? s->epoch : -1,
                            .epochs = loader->epochs,
                            .epoch = loader->epoch,
                            .begun = loader->begun,
                            .position = loader->begun ? loader_position(loader) : 0};
}

static tt_status state_fill(tt_loader *loader) {
    tt__loader_state *state = &loader->state;
    const tt_sampler *s = loader->sampler;
    const loader_numbers numbers = numbers_of(loader);
    int64_t number[NUMBERS];
    memcpy(number, &numbers, sizeof number);
    for (int i = 0; i < NUMBERS; i++)
        TT__TRY(state_add(state, number_names[i], tt_from_data(&number[i], TT_SCALAR, TT_I64)));
    if (loader->begun && loader->sizes)
        TT__TRY(state_add(state, "batch_sizes", tt_from_data(loader->sizes, TT_SHAPE(s->batches), TT_I64)));
    if (loader->begun && !s->pure) {
        int64_t n = loader->sizes ? loader->examples : s->size;
        TT__TRY(state_add(state, "order", tt_from_data(loader->order, TT_SHAPE(n), TT_I64)));
    }
    return s->generator ? state_add(state, "generator", tt_generator_get_state(s->generator)) : TT_OK;
}

const tt_named_tensors *tt_loader_state_dict(tt_loader *loader) {
    if (!loader)
        return NULL;
    tt__loader_state *state = &loader->state;
    tt__loader_state_free(state);
    state->list = (tt_named_tensors){sizeof state->list, 0, state->names, state->tensors};
    if (!state_fill(loader))
        return &state->list;
    tt__loader_state_free(state);
    return NULL;
}

/* ---- loading ---- */

static const char who[] = "tt_loader_load_state_dict";

/* Find an entry of n numbers; -1: a scalar. */
static tt_status find_loader_numbers(const tt_named_tensors *state, const char *name, int64_t n, const int64_t **out) {
    const tt_tensor *x = tt_named_tensors_find(state, name);
    if (!x)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"%s\" is missing", who, name);
    if (tt_tensor_dtype(x) != TT_I64)
        return tt__fail(TT_ERR_DTYPE, "%s: \"%s\": expected i64, got %s", who, name, TT__DESCRIBE(x));
    if (tt_tensor_numel(x) != (n < 0 ? 1 : n))
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected %" PRId64 " numbers, got %s", who, name, n < 0 ? 1 : n,
                        TT__DESCRIBE(x));
    if (!x->contiguous || !tt__device_is_host(tt__device_of(x)))
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\": expected a contiguous tensor of the host, got %s", who, name,
                        TT__DESCRIBE(x));
    *out = x->data;
    return TT_OK;
}

static tt_status read_loader_numbers(const tt_named_tensors *state, loader_numbers *numbers) {
    int64_t number[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        const int64_t *found = NULL; /* gcc at -O3 doesn't see that success sets it */
        TT__TRY(find_loader_numbers(state, number_names[i], -1, &found));
        number[i] = *found;
    }
    memcpy(numbers, number, sizeof number);
    return TT_OK;
}

static tt_status check_loader_numbers(const tt_loader *loader, const loader_numbers *n) {
    const tt_sampler *s = loader->sampler;
    if (n->dataset_size != s->dataset_size)
        return tt__fail(TT_ERR_INVALID,
                        "%s: the state is of a data set of %" PRId64 " examples, but this one has %" PRId64, who,
                        n->dataset_size, s->dataset_size);
    if ((uint64_t)n->seed != s->seed)
        return tt__fail(TT_ERR_INVALID,
                        "%s: the state is of a sampler with seed %" PRIu64 ", but this one has %" PRIu64
                        "; make the sampler with the same seed",
                        who, (uint64_t)n->seed, s->seed);
    int64_t most = s->replicas ? INT64_MAX / 4 : s->size;
    if ((n->begun | 1) != 1 || n->sampler_epoch < -1 || n->epochs < 0 || n->epochs > INT64_MAX / 2 || n->position < 0 ||
        n->position > most)
        return tt__fail(TT_ERR_INVALID,
                        "%s: this is no loader's state: begun %" PRId64 ", epochs %" PRId64 ", position %" PRId64
                        " of %" PRId64,
                        who, n->begun, n->epochs, n->position, most);
    return TT_OK;
}

/* Find the order of n examples. */
static tt_status find_loader_order(const tt_loader *loader, const tt_named_tensors *state, int64_t n,
                                   const int64_t **order) {
    const tt_sampler *s = loader->sampler;
    TT__TRY(find_loader_numbers(state, "order", n, order));
    for (int64_t i = 0; i < n; i++)
        if ((*order)[i] < 0 || (*order)[i] >= s->dataset_size)
            return tt__fail(TT_ERR_INVALID, "%s: \"order\": expected indices from 0 to %" PRId64 ", got %" PRId64, who,
                            s->dataset_size - 1, (*order)[i]);
    return TT_OK;
}

/* Everything that loading needs of a state, checked. */
typedef struct loader_parts {
    loader_numbers numbers;
    const int64_t *order; /* or NULL: it is made again */
    const int64_t *sizes; /* of a batch sampler's batches; or NULL */
    int64_t batch;        /* how many of them came before the position */
    const tt_tensor *generator;
} loader_parts;

/* Find the batches of a program's own batch sampler; *examples := how many they have. */
static tt_status find_batch_sizes(const tt_loader *loader, const tt_named_tensors *state, loader_parts *parts,
                                  int64_t *examples) {
    const tt_sampler *s = loader->sampler;
    int64_t at = 0;
    TT__TRY(find_loader_numbers(state, "batch_sizes", s->batches, &parts->sizes));
    TT__TRY(tt__check_batch_sizes(who, s, parts->sizes, examples));
    while (at < parts->numbers.position && parts->batch < s->batches)
        at += parts->sizes[parts->batch++];
    if (at != parts->numbers.position)
        return tt__fail(TT_ERR_INVALID, "%s: position: expected one at which a batch begins, got %" PRId64, who,
                        parts->numbers.position);
    return TT_OK;
}

static tt_status find_loader_epoch(const tt_loader *loader, const tt_named_tensors *state, loader_parts *parts) {
    int64_t n = loader->sampler->size;
    if (loader->sizes)
        TT__TRY(find_batch_sizes(loader, state, parts, &n));
    return find_loader_order(loader, state, n, &parts->order);
}

static tt_status read_loader_parts(const tt_loader *loader, const tt_named_tensors *state, loader_parts *parts) {
    *parts = (loader_parts){.order = NULL};
    TT__TRY(tt__named_tensors_check(who, state, true));
    TT__TRY(read_loader_numbers(state, &parts->numbers));
    TT__TRY(check_loader_numbers(loader, &parts->numbers));
    if (parts->numbers.begun && !loader->sampler->pure)
        TT__TRY(find_loader_epoch(loader, state, parts));
    if (!loader->sampler->generator)
        return TT_OK;
    parts->generator = tt_named_tensors_find(state, "generator");
    if (!parts->generator)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: entry \"generator\" is missing, the state of the sampler's own", who);
    tt_generator probe;
    return tt_generator_set_state(&probe, parts->generator);
}

tt_status tt__loader_check_state(const tt_loader *loader, const tt_named_tensors *state) {
    loader_parts parts;
    return read_loader_parts(loader, state, &parts);
}

/* Go on in the middle of an epoch. */
static tt_status resume_epoch(tt_loader *loader, const loader_parts *parts) {
    tt_sampler *s = loader->sampler;
    int64_t position = parts->numbers.position;
    TT__TRY(tt__loader_clock_epoch(loader));
    if (parts->order) {
        tt__sampler_put(s, parts->order, parts->sizes);
        memcpy(loader->order, parts->order, (size_t)s->now * sizeof *loader->order);
    } else {
        TT__TRY(tt__sampler_resume(s, s->rest ? position : 0, loader->order));
    }
    if (loader->sizes)
        memcpy(loader->sizes, parts->sizes, (size_t)s->batches * sizeof *loader->sizes);
    loader->at = loader->given = s->rest ? 0 : position;
    loader->batch = parts->batch;
    loader->lent = 0;
    loader->share = s->now;
    loader->in_a_row = loader->wanted_in_a_row;
    loader->examples = tt__loader_examples(loader, s->now);
    loader->begun = true;
    return TT_OK;
}

tt_status tt_loader_load_state_dict(tt_loader *loader, const tt_named_tensors *state) {
    loader_parts parts;
    if (!loader)
        return tt__fail(TT_ERR_INVALID, "%s: the loader is NULL", who);
    TT__TRY(read_loader_parts(loader, state, &parts));
    tt_loader_restart(loader);
    if (parts.generator)
        TT__TRY(tt_generator_set_state(loader->sampler->generator, parts.generator));
    tt_sampler_set_epoch(loader->sampler, parts.numbers.sampler_epoch < 0 ? 0 : parts.numbers.sampler_epoch);
    loader->sampler->epoch_said = parts.numbers.sampler_epoch >= 0;
    loader->sampler->drawn = false;
    loader->epochs = parts.numbers.epochs;
    loader->epoch = parts.numbers.epoch;
    return parts.numbers.begun ? resume_epoch(loader, &parts) : TT_OK;
}
