/* Text, one token after the other. The prompt runs through the model at once and leaves its keys and values in a cache
 * (causal_lm.h); each further token costs one position. When all positions are used, a sliding window begins anew with
 * the last half of its tokens, so a token costs two positions on average. */

#include "base/args.h"
#include "base/error.h"
#include "models/causal_lm.h"

#include <tutti/functional.h>
#include <tutti/models.h>

#include <math.h>
#include <string.h>

/* ---- choosing a token ----
 * It is drawn with probability e^(logit / temperature), divided by the sum over all that are left after top_k and
 * then top_p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020). One draw takes 64 bits of the
 * generator. */

/* Candidates; with top_k or top_p the likeliest first. */
typedef struct candidates {
    int64_t count;
    tt_tensor *logits, *ids; /* f64, i64 on the host; ids NULL: 0, 1, ... */
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

/* Return how many of the first candidates have at least this share of *sum, which becomes their own sum. */
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

static const char who[] = "tt_model_generate";

typedef struct generation {
    tt_model_generate_args a;
    tt_module *self;
    tt__causal_lm *lm;
    tt__token_choice choice;
    int64_t begin, done; /* the cache has tokens begin .. done-1 of prompt and text */
} generation;

/* ---- checks ---- */

static tt_status check_prompt(const tt_model_generate_args *a, const tt__causal_lm *lm) {
    if (!a->prompt || a->prompt_count < 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a prompt of at least 1 token, got %lld%s", who,
                        (long long)a->prompt_count, a->prompt ? "" : " and no list");
    for (int64_t i = 0; i < a->prompt_count; i++)
        if (a->prompt[i] < 0 || a->prompt[i] >= lm->vocab_size)
            return tt__fail(TT_ERR_INVALID, "%s: expected tokens in 0..%lld, got %lld at place %lld of the prompt", who,
                            (long long)lm->vocab_size - 1, (long long)a->prompt[i], (long long)i);
    if (!a->sliding_window && a->max_new_tokens - 1 > lm->n_positions - a->prompt_count)
        return tt__fail(TT_ERR_INVALID,
                        "%s: the model has %lld positions, too few for a prompt of %lld tokens and %lld new ones; "
                        ".sliding_window = true goes on with the last of them",
                        who, (long long)lm->n_positions, (long long)a->prompt_count, (long long)a->max_new_tokens);
    return TT_OK;
}

static tt_status check_generate(const tt_model_generate_args *a, const tt__causal_lm *lm) {
    if (a->max_new_tokens < 0 || (a->max_new_tokens && !a->tokens))
        return tt__fail(TT_ERR_INVALID, "%s: expected max_new_tokens of at least 0 and room for them, got %lld%s", who,
                        (long long)a->max_new_tokens, a->tokens ? "" : " and no room");
    if (!(a->temperature >= 0) || isinf(a->temperature) || a->top_k < 0 || !(a->top_p >= 0 && a->top_p <= 1))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected temperature and top_k of at least 0 and top_p in 0..1, got %g, %lld and %g", who,
                        a->temperature, (long long)a->top_k, a->top_p);
    if (a->stop_token.given && (a->stop_token.value < 0 || a->stop_token.value >= lm->vocab_size))
        return tt__fail(TT_ERR_INVALID, "%s: expected stop_token in 0..%lld, got %lld", who,
                        (long long)lm->vocab_size - 1, (long long)a->stop_token.value);
    return check_prompt(a, lm);
}

/* ---- steps ---- */

static int64_t token_at(const generation *g, int64_t i) {
    return i < g->a.prompt_count ? g->a.prompt[i] : g->a.tokens[i - g->a.prompt_count];
}

/* Tokens done .. total-1 as the model takes them, (1,T). */
static tt_tensor *new_ids(const generation *g, int64_t total) {
    tt_tensor *ids = tt_empty(TT_SHAPE(1, total - g->done), TT_I64);
    int64_t *data = ids ? tt_tensor_i64(ids) : NULL;
    for (int64_t i = g->done; data && i < total; i++)
        data[i - g->done] = token_at(g, i);
    return tt_to_device(ids, tt_tensor_device(g->lm->token_weight));
}

/* Choose the token that follows the first `total`. */
static tt_status next_token(generation *g, int64_t total, int64_t *token) {
    TT_AUTO_SCOPE;
    int64_t P = g->lm->n_positions;
    if (total - g->begin > P) {
        g->begin = g->done = total - (P > 1 ? P / 2 : 1);
        g->lm->cache->used = 0;
    }
    tt_tensor *hidden = tt__lm_hidden(g->self, g->lm, new_ids(g, total));
    tt_tensor *last = tt_narrow(hidden, 1, tt_tensor_size(hidden, 1) - 1, 1);
    tt_tensor *logits = tt_module_forward(g->lm->head, last);
    if (!logits)
        return tt_last_status();
    g->done = total;
    return tt__token_choose(token, logits, &g->choice);
}

/* Generate tokens; *count is how many there are so far. */
static tt_status generate_all(generation *g, int64_t *count) {
    const tt_model_generate_args *a = &g->a;
    bool go_on = true;
    while (go_on && *count < a->max_new_tokens) {
        int64_t *token = &a->tokens[*count];
        TT__TRY(next_token(g, a->prompt_count + *count, token));
        ++*count;
        go_on = !(a->stop_token.given && *token == a->stop_token.value);
        if (a->on_token && !a->on_token(*token, a->user))
            go_on = false;
    }
    return TT_OK;
}

static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

static tt__kv_cache *generation_cache(const generation *g) {
    const tt__causal_lm *lm = g->lm;
    int64_t new_ones = smaller_of(g->a.max_new_tokens - 1, lm->n_positions);
    int64_t room = smaller_of(lm->n_positions, smaller_of(g->a.prompt_count, lm->n_positions) + new_ones);
    return tt__kv_cache_new(lm->n_layer, TT_SHAPE(1, lm->n_head, room, lm->n_embd / lm->n_head), lm->token_weight);
}

tt_status tt_model_generate_with(const tt_model_generate_args *args, size_t size) {
    generation g = {0};
    int64_t count = 0;
    TT__ARGS_COPY(g.a, args, size);
    if (g.a.count)
        *g.a.count = 0;
    g.self = g.a.model;
    g.lm = tt__causal_lm_of(who, g.a.model);
    if (!g.lm)
        return tt_last_status();
    TT__TRY(check_generate(&g.a, g.lm));
    if (g.a.max_new_tokens == 0)
        return TT_OK;
    if (g.lm->cache)
        return tt__fail(TT_ERR_STATE, "%s: the model is generating already", who);
    g.choice = (tt__token_choice){g.a.temperature, g.a.top_k, g.a.top_p, g.a.generator};
    g.begin = g.done = g.a.prompt_count - smaller_of(g.a.prompt_count, g.lm->n_positions);
    g.lm->cache = generation_cache(&g);
    tt_status status = g.lm->cache ? TT_OK : tt_last_status();
    if (!status) {
        bool no_grad = tt_no_grad_begin();
        status = generate_all(&g, &count);
        tt_no_grad_end(no_grad);
    }
    tt__kv_cache_free(g.lm->cache);
    g.lm->cache = NULL;
    if (g.a.count)
        *g.a.count = count;
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}
