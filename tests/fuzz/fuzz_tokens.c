/* A file of tokens of each type: its examples have tokens of the vocabulary, or can't be read. */
#include "fuzz/folder.h"

#include <tutti/datasets.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file("tokens", data, size);
    for (int type = TT_TOKEN_U16; type <= TT_TOKEN_I32; type++) {
        tt_dataset *set = tt_token_dataset(path, 1, .type = (tt_token_type)type, .vocab_size = 50257);
        for (int64_t i = 0; i < tt_dataset_size(set); i++) {
            int64_t x = 0, y = 0;
            if (!tt_dataset_get(set, i, &x, &y) && (x < 0 || x >= 50257 || y < 0 || y >= 50257))
                abort();
        }
        tt_dataset_free(set);
    }
    return 0;
}
