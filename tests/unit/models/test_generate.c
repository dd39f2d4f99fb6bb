/* Text: keys and values that are kept beside a model that reads all again, how tokens are chosen, where a text ends,
 * sliding windows, wrong options, memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gpt_cases.h"
#include "models/causal_lm.h"
#include "unit/alloc_count.h"
#include "unit/expect.h"
#include "unit/vectors.h"

static const int64_t prompt[] = {0, 17, 34, 51};
enum { PROMPT = 4, ROOM = 64 };

/* The likeliest token behind n others, by a forward pass over the last `window` of them. */
static int64_t likeliest_behind(tt_module *model, const int64_t *text, int64_t n, int64_t window) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data(text + n - window, TT_SHAPE(1, window), TT_I64);
    tt_tensor *last = tt_select(tt_module_forward(model, x), 1, -1);
    return *tt_tensor_i64(tt_argmax(last, 1));
}

/* ---- beside a model that reads all again ---- */

static void greedy_text_is_pytorchs(void **state) {
    (void)state;
    int64_t text[ROOM], n = -1;
    json_t *vectors = vectors_load("torch-gpt.json");
    const json_t *expected = json_object_get(json_object_get(vectors, "gpt2"), "text");
    tt_module *model = gpt2_case(TT_F64);
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, GPT_P - PROMPT), TT_OK);
    assert_int_equal(n, json_array_size(expected));
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(text[i], json_integer_value(json_array_get(expected, (size_t)i)));
    json_decref(vectors);
    tt_module_free(model);
}

/* The logits of each token, computed with what was kept, are those of the whole text at once. */
static void kept_keys_give_the_same_logits(tt_module *model) {
    TT_AUTO_SCOPE;
    tt__causal_lm *lm = tt__causal_lm_of("test", model);
    tt_tensor *ids = gpt_tokens(1, GPT_P), *whole = tt_module_forward(model, ids);
    lm->cache = tt__kv_cache_new(GPT_L, TT_SHAPE(1, GPT_H, GPT_P, GPT_C / GPT_H), lm->token_weight);
    for (int64_t from = 0, n = 5; from < GPT_P; from += n, n = 1) {
        double distance = NAN;
        tt_tensor *part = tt_module_forward(lm->head, tt__lm_hidden(model, lm, tt_narrow(ids, 1, from, n)));
        assert_int_equal(lm->cache->used, from + n);
        assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(part, tt_narrow(whole, 1, from, n)))), &distance), TT_OK);
        assert_true(distance <= 1e-5);
    }
    tt__kv_cache_free(lm->cache);
    lm->cache = NULL;
}

static void logits_with_and_without_a_cache(void **state) {
    (void)state;
    tt_module *models[] = {gpt2_case(TT_F32), tt_model_gpt(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H)};
    for (int i = 0; i < 2; i++) {
        tt_module_eval(models[i]);
        kept_keys_give_the_same_logits(models[i]);
        tt_module_free(models[i]);
    }
}

/* The window grows to the model's positions, then begins again with their last half. */
static void sliding_text_is_that_of_its_windows(tt_module *model, const int64_t *from, int64_t count) {
    int64_t text[ROOM + PROMPT], n = -1, window = count < GPT_P ? count : GPT_P;
    memcpy(text, from, (size_t)count * sizeof *from);
    assert_int_equal(tt_model_generate(text + count, &n, model, from, count, 40, .sliding_window = true), TT_OK);
    assert_int_equal(n, 40);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(text[count + i], likeliest_behind(model, text, count + i, window));
        window = window == GPT_P ? GPT_P / 2 : window + 1;
    }
}

static void sliding_windows(void **state) {
    (void)state;
    int64_t longer[GPT_P + 3];
    tt_module *model = gpt2_case(TT_F64), *narrow = tt_model_gpt(GPT_V, 1, GPT_C, 1, 1);
    for (int64_t i = 0; i < GPT_P + 3; i++)
        longer[i] = i * 7 % GPT_V;
    sliding_text_is_that_of_its_windows(model, prompt, PROMPT);
    sliding_text_is_that_of_its_windows(model, longer, GPT_P);
    sliding_text_is_that_of_its_windows(model, longer, GPT_P + 3);
    assert_int_equal(tt_model_generate(longer, NULL, narrow, prompt, PROMPT, 9, .sliding_window = true), TT_OK);
    tt_module_free(model);
    tt_module_free(narrow);
}

/* ---- how tokens are chosen ---- */

enum { LOGITS = 5, DRAWS = 20000 };
static const float logits[LOGITS] = {1, -2, 2.5f, 2, 0};

/* Draw often; each token comes as often as e^(logit / temperature) says among those that may come. */
static void drawn_as_expected(const tt__token_choice *how, const bool *may_come) {
    double weight[LOGITS], sum = 0;
    int64_t seen[LOGITS] = {0};
    for (int i = 0; i < LOGITS; i++)
        sum += weight[i] = may_come[i] ? exp((double)logits[i] / how->temperature) : 0;
    for (int i = 0; i < DRAWS; i++) {
        TT_AUTO_SCOPE;
        int64_t token = -1;
        tt_tensor *x = tt_from_data(logits, TT_SHAPE(1, 1, LOGITS), TT_F32);
        assert_int_equal(tt__token_choose(&token, x, how), TT_OK);
        seen[token]++;
    }
    for (int i = 0; i < LOGITS; i++) {
        double p = weight[i] / sum, deviation = sqrt(DRAWS * p * (1 - p));
        assert_true(fabs((double)seen[i] - DRAWS * p) <= 5 * deviation);
    }
}

static void draws_have_their_probabilities(void **state) {
    (void)state;
    tt_generator *g = tt_generator_new(3);
    const bool all[LOGITS] = {true, true, true, true, true}, two[LOGITS] = {[2] = true, [3] = true};
    const bool three[LOGITS] = {[0] = true, [2] = true, [3] = true}, one[LOGITS] = {[2] = true};
    drawn_as_expected(&(tt__token_choice){.temperature = 1, .generator = g}, all);
    drawn_as_expected(&(tt__token_choice){.temperature = 3, .top_k = 9, .top_p = 1, .generator = g}, all);
    drawn_as_expected(&(tt__token_choice){.temperature = 0.7, .top_k = 2, .generator = g}, two);
    drawn_as_expected(&(tt__token_choice){.temperature = 1, .top_p = 0.7, .generator = g}, two); /* 0.50, 0.30, 0.11 */
    drawn_as_expected(&(tt__token_choice){.temperature = 1, .top_p = 0.85, .generator = g}, three);
    drawn_as_expected(&(tt__token_choice){.temperature = 1, .top_k = 4, .top_p = 0.01, .generator = g}, one);
    drawn_as_expected(&(tt__token_choice){.temperature = 1, .top_k = 1, .generator = g}, one);
    tt_generator_free(g);
}

static void no_number_is_no_token(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    int64_t token = -1;
    const float bad[2][3] = {{0, NAN, 1}, {0, INFINITY, 1}}, good[3] = {-INFINITY, -5, -INFINITY};
    const tt__token_choice how = {.temperature = 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tt__token_choose(&token, tt_from_data(bad[i], TT_SHAPE(3), TT_F32), &how), TT_ERR_NAN);
        expect_error(TT_ERR_NAN, "the largest logit of the next token is");
    }
    assert_int_equal(tt__token_choose(&token, tt_from_data(good, TT_SHAPE(3), TT_F32), &how), TT_OK);
    assert_int_equal(token, 1);
}

static void a_seed_gives_a_text(void **state) {
    (void)state;
    int64_t a[12], b[12], greedy[12];
    tt_module *model = gpt2_case(TT_F32);
    tt_generator *g = tt_generator_new(5);
    assert_int_equal(tt_model_generate(a, NULL, model, prompt, PROMPT, 12, .temperature = 3, .generator = g), TT_OK);
    tt_generator_seed(g, 5);
    assert_int_equal(tt_model_generate(b, NULL, model, prompt, PROMPT, 12, .temperature = 3, .generator = g), TT_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(tt_model_generate(b, NULL, model, prompt, PROMPT, 12, .temperature = 3, .generator = g), TT_OK);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(tt_model_generate(greedy, NULL, model, prompt, PROMPT, 12), TT_OK);
    assert_int_equal(tt_model_generate(a, NULL, model, prompt, PROMPT, 12, .temperature = 3, .top_k = 1), TT_OK);
    assert_memory_equal(a, greedy, sizeof a);
    tt_generator_free(g);
    tt_module_free(model);
}

/* ---- modes, types, wrappers ---- */

static tt_module *the_wrapped(tt_module *self) { return tt_module_user(self); }

static void nothing_is_dropped(void **state) {
    (void)state;
    static const tt_module_class wrapper_class = TT_MODULE_CLASS(.name = "Wrapper", .wrapped = the_wrapped);
    int64_t a[12], b[12];
    tt_module *model =
        tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H, .embd_pdrop = 0.5, .attn_pdrop = 0.5, .resid_pdrop = 0.5);
    gpt2_set_weights(model);
    tt_module *wrapper = tt_module_new(&wrapper_class, model);
    assert_int_equal(tt_model_generate(a, NULL, wrapper, prompt, PROMPT, 12), TT_OK);
    assert_true(tt_module_training(model));
    tt_module_eval(model);
    assert_int_equal(tt_model_generate(b, NULL, model, prompt, PROMPT, 12), TT_OK);
    assert_memory_equal(a, b, sizeof a);
    tt_module_free(wrapper);
    tt_module_free(model);
}

static void models_in_bf16_write_too(void **state) {
    (void)state;
    int64_t text[12], n = 0;
    tt_module *model = gpt2_case(TT_F32);
    assert_int_equal(tt_module_to(model, TT_BF16), TT_OK);
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, 12), TT_OK);
    assert_int_equal(n, 12);
    assert_int_equal(text[0], likeliest_behind(model, prompt, PROMPT, PROMPT));
    tt_module_free(model);
}

/* ---- where a text ends ---- */

typedef struct listener {
    int64_t heard, last, most;
    tt_module *model;
} listener;

static bool listen_to(int64_t token, void *user) {
    listener *l = user;
    l->last = token;
    return ++l->heard < l->most;
}

static bool ask_again(int64_t token, void *user) {
    listener *l = user;
    int64_t more;
    l->heard += tt_model_generate(&more, NULL, l->model, &token, 1, 1) == TT_ERR_STATE;
    return false;
}

static void where_a_text_ends(void **state) {
    (void)state;
    int64_t text[12], n = -1;
    tt_module *model = gpt2_case(TT_F64);
    listener l = {.most = 5, .model = model};
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, 12, .on_token = listen_to, .user = &l), TT_OK);
    assert_int_equal(n, 5);
    assert_int_equal(l.last, text[4]);
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, 12, .stop_token = TT_INDEX(text[2])), TT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(tt_model_generate(NULL, &n, model, prompt, PROMPT, 0), TT_OK);
    assert_int_equal(n, 0);
    l.heard = 0;
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, 12, .on_token = ask_again, .user = &l), TT_OK);
    assert_int_equal(l.heard, 1);
    expect_error(TT_ERR_STATE, "the model is generating already");
    tt_module_free(model);
}

/* ---- wrong options ---- */

static void wrong_prompts(void **state) {
    (void)state;
    int64_t text[ROOM], n = 7;
    const int64_t strange[] = {3, 65};
    tt_module *model = gpt2_case(TT_F32), *other = tt_nn_relu();
    assert_int_equal(tt_model_generate(text, &n, model, prompt, PROMPT, 14), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "the model has 16 positions, too few for a prompt of 4 tokens and 14 new ones");
    assert_int_equal(n, 0);
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 13), TT_OK);
    assert_int_equal(tt_model_generate(text, NULL, model, strange, 2, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected tokens in 0..64, got 65 at place 1 of the prompt");
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, 0, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a prompt of at least 1 token, got 0");
    assert_int_equal(tt_model_generate(text, NULL, other, prompt, PROMPT, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a model of tt_model_gpt() or tt_model_gpt2(), got a ReLU");
    assert_int_equal(tt_model_generate(text, NULL, NULL, prompt, PROMPT, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_model_generate: the model is NULL");
    tt_module_free(model);
    tt_module_free(other);
}

static void wrong_choices(void **state) {
    (void)state;
    int64_t text[4];
    tt_module *model = gpt2_case(TT_F32);
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, -1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected max_new_tokens of at least 0");
    assert_int_equal(tt_model_generate(NULL, NULL, model, prompt, PROMPT, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "no room");
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 1, .temperature = -1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "got -1, 0 and 0");
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 1, .top_p = 1.5), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "top_p in 0..1");
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 1, .top_k = -2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "top_k");
    assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 1, .stop_token = TT_INDEX(65)),
                     TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected stop_token in 0..64, got 65");
    tt_module_free(model);
}

/* ---- memory ---- */

typedef struct allocations {
    int64_t tokens;
    long early, late;
} allocations;

static bool count_allocations(int64_t token, void *user) {
    allocations *all = user;
    (void)token;
    if (++all->tokens == 6)
        all->early = alloc_count_own;
    all->late = alloc_count_own;
    return true;
}

static void a_token_allocates_nothing(void **state) {
    (void)state;
    int64_t text[12];
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    tt_module *model = gpt2_case(TT_F32);
    for (int round = 0; round < 2; round++) {
        allocations all = {0};
        assert_int_equal(tt_model_generate(text, NULL, model, prompt, PROMPT, 12, .temperature = 1, .top_k = 5,
                                           .on_token = count_allocations, .user = &all),
                         TT_OK);
        if (round)
            assert_int_equal(all.late, all.early);
    }
    tt_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_pytorchs), cmocka_unit_test(logits_with_and_without_a_cache),
        cmocka_unit_test(sliding_windows),         cmocka_unit_test(draws_have_their_probabilities),
        cmocka_unit_test(no_number_is_no_token),   cmocka_unit_test(a_seed_gives_a_text),
        cmocka_unit_test(nothing_is_dropped),      cmocka_unit_test(models_in_bf16_write_too),
        cmocka_unit_test(where_a_text_ends),       cmocka_unit_test(wrong_prompts),
        cmocka_unit_test(wrong_choices),           cmocka_unit_test(a_token_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
