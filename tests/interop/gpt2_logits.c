/* Loads a GPT-2 and prints, a number a line, the logits behind a text, then the tokens it goes on with:
 *
 *   gpt2_logits PATH NEW-TOKENS TOKEN... */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { MOST = 64 };

static tt_status print_all(tt_module *model, const int64_t *tokens, int64_t n, int64_t more) {
    TT_AUTO_SCOPE;
    int64_t text[MOST];
    tt_tensor *y = tt_module_forward(model, tt_from_data(tokens, TT_SHAPE(1, n), TT_I64));
    tt_tensor *last = tt_contiguous(tt_select(y, 1, -1));
    if (!last)
        return tt_last_status();
    for (int64_t i = 0; i < tt_tensor_numel(last); i++)
        printf("%.9g\n", (double)tt_tensor_f32(last)[i]);
    tt_status status = tt_model_generate(text, NULL, model, tokens, n, more);
    for (int64_t i = 0; i < more && !status; i++)
        printf("%" PRId64 "\n", text[i]);
    return status;
}

int main(int argc, char **argv) {
    int64_t tokens[MOST], n = argc - 3, more = argc > 2 ? strtoll(argv[2], NULL, 10) : -1;
    if (n < 1 || n > MOST || more < 0 || more > MOST) {
        fprintf(stderr, "usage: gpt2_logits PATH NEW-TOKENS TOKEN...\n");
        return 2;
    }
    for (int64_t i = 0; i < n; i++)
        tokens[i] = strtoll(argv[i + 3], NULL, 10);
    tt_module *model = tt_model_gpt2_from_pretrained(argv[1]);
    tt_status status = model ? print_all(model, tokens, n, more) : tt_last_status();
    if (status)
        tt_report();
    tt_module_free(model);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
