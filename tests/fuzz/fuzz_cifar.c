/* CIFAR's records as a file of each of the two sets, with each of the three kinds of label. */
#include "fuzz/folder.h"

#include <tutti/datasets.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Check that each example of a set (NULL: the file was refused) has a label with a name. */
static void check(tt_dataset *set) {
    static uint8_t x[3 * 32 * 32];
    int64_t classes = 0, label = 0;
    const char *const *names = tt_dataset_classes(set, &classes);
    for (int64_t i = 0; i < tt_dataset_size(set); i++)
        if (tt_dataset_get(set, i, x, &label) || label < 0 || label >= classes || !names[label])
            abort();
    tt_dataset_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_file("test_batch.bin", data, size);
    fuzz_file("test.bin", data, size);
    check(tt_cifar10(fuzz_folder, false));
    check(tt_cifar100(fuzz_folder, false));
    check(tt_cifar100(fuzz_folder, false, .coarse = true));
    return 0;
}
