/* A token is drawn with probability e^(logit / temperature), divided by the sum over all that are left after top_k and
 * then top_p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020). One draw takes 64 bits of the
 * generator. */
#include "models/token_choice.h"

#include "base/error.h"

#include <math.h>
#include <tutti/functional.h>

/* Candidates, the likeliest first where only some of them may be chosen. */
typedef struct candidates {
    int64_t count;
    tt_tensor *logits, *ids; /* f64, i64 on the host; no ids: they are 0, 1, ... */
    double largest;
} candidates;

static tt_status find_candidates(candidates *c, tt_tensor *logits, const tt__token_choice *how) {
    int64_t V = tt_tensor_numel(logits), k = how->top_k && how->top_k < V ? how->top_k : V;
    tt_tensor *row = tt_to(tt_to_device(tt_reshape(logits, TT_SHAPE(V)), tt_device_get("cpu")), TT_F64);
    *c = (candidates){.count = k, .logits = row};
    TT__TRY(tt_item(tt_max(row), &c->largest));
    if (!isfinite(c->largest))
        return tt__fail(TT_ERR_NAN, "the largest logit of the next token is %g", c->largest);
    if (k < V || how->top_p > 0)
        return tt_topk(&c->logits, &c->ids, row, k, -1);
    return TT_OK;
}

/* Set each candidate's weight; return their sum. */
static double weigh(const candidates *c, double temperature, double *weight) {
    const double *logit = tt_tensor_data(c->logits);
    double sum = 0;
    for (int64_t i = 0; i < c->count; i++)
        sum += weight[i] = exp((logit[i] - c->largest) / temperature);
    return sum;
}

/* Return how many of the first have at least this share of the sum; their own sum takes its place. */
static int64_t nucleus(const double *weight, int64_t count, double share, double *sum) {
    double enough = share * *sum, part = 0;
    int64_t n = 0;
    while (n < count && part < enough)
        part += weight[n++];
    *sum = part;
    return n;
}

static int64_t draw(const double *weight, int64_t count, double sum, tt_generator *generator) {
    double left = (double)(tt_generator_random64(generator) >> 11) * 0x1p-53 * sum;
    for (int64_t i = 0; i + 1 < count; i++) {
        if (left < weight[i])
            return i;
        left -= weight[i];
    }
    return count - 1;
}

tt_status tt__token_choose(int64_t *token, tt_tensor *logits, const tt__token_choice *how) {
    candidates c;
    TT__TRY(find_candidates(&c, logits, how));
    tt_tensor *likeliest = tt_argmax(c.logits, 0), *weights = tt_empty_like(c.logits);
    if (!likeliest || !weights)
        return tt_last_status();
    int64_t place = *tt_tensor_i64(likeliest);
    if (how->temperature > 0) {
        double *weight = tt_tensor_data(weights), sum = weigh(&c, how->temperature, weight);
        if (how->top_p > 0 && how->top_p < 1)
            c.count = nucleus(weight, c.count, how->top_p, &sum);
        place = draw(weight, c.count, sum, how->generator);
    }
    *token = c.ids ? tt_tensor_i64(c.ids)[place] : place;
    return TT_OK;
}
