/* For test_checkpoint_kill: checkpoint_saver PATH saves a checkpoint there again and again until it is killed. Save
 * number i holds tensors filled with i and says so in its metadata, so that a mixture of two saves can be told.
 * Prints a line before the first save. */
#include <inttypes.h>
#include <stdio.h>
#include <tutti/tutti.h>

/* Tensors of several sizes, so that a save takes several writes. */
static const int64_t sizes[] = {1, 1000, 30000, 200000};
enum { TENSORS = sizeof sizes / sizeof *sizes };

int main(int argc, char **argv) {
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    tt_tensor *tensors[TENSORS];
    if (argc != 2)
        return 2;
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = tt_zeros(TT_SHAPE(sizes[t]), TT_F32);
    puts("saving");
    fflush(stdout);
    for (int64_t i = 0;; i++) {
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, i);
        const tt_metadata metadata[] = {{"save", number}};
        for (int t = 0; t < TENSORS; t++)
            for (int64_t k = 0; k < sizes[t]; k++)
                tt_tensor_f32(tensors[t])[k] = (float)i;
        if (tt_safetensors_save(argv[1], TT_NAMED_TENSORS(TENSORS, names, tensors), metadata, 1)) {
            tt_report();
            return 1;
        }
    }
}
