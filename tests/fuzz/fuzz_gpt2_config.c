/* The reader of GPT-2's config.json on any bytes. What it accepts has all sizes, and dropouts that are numbers. */
#include <stdint.h>
#include <stdlib.h>

#include "models/causal_lm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt_model_gpt2_args a = {0};
    tt_clear_error();
    tt_status status = tt__gpt2_config_parse(data, size, "fuzz", &a);
    if (status && (tt_last_status() != status || !*tt_last_error()))
        abort();
    bool sizes = a.vocab_size > 0 && a.n_positions > 0 && a.n_embd > 0 && a.n_layer > 0 && a.n_head > 0;
    if (status)
        return 0;
    if (!sizes || a.n_inner < 0 || !(a.embd_pdrop >= 0 && a.attn_pdrop >= 0 && a.resid_pdrop >= 0))
        abort();
    return 0;
}
