/* CIFAR's records from memory, as each of the three kinds of label. */
#include "data/datasets/cifar.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void split(const tt__cifar_label *label, const uint8_t *data, size_t size) {
    int64_t count = 0;
    if (tt__cifar_count(label, "fuzz", size, &count))
        return;
    uint8_t *images = malloc((size_t)count * TT__CIFAR_IMAGE);
    int64_t *labels = malloc((size_t)count * sizeof *labels);
    if (!images || !labels)
        abort();
    if (!tt__cifar_split(label, "fuzz", data, count, images, labels))
        for (int64_t i = 0; i < count; i++)
            if (labels[i] < 0 || labels[i] >= label->classes || !label->names[labels[i]])
                abort();
    free(images);
    free(labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    split(&tt__cifar10_label, data, size);
    split(&tt__cifar100_fine, data, size);
    split(&tt__cifar100_coarse, data, size);
    return 0;
}
