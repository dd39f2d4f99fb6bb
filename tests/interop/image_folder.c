/* Prints all examples of an image folder: DIR HEIGHT WIDTH RESIZE; of each its class as one byte, then its pixels. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/datasets.h>

static int dump(tt_dataset *set, size_t bytes) {
    uint8_t *x = malloc(bytes);
    for (int64_t i = 0; x && i < tt_dataset_size(set); i++) {
        int64_t y;
        if (tt_dataset_get(set, i, x, &y)) {
            free(x);
            return EXIT_FAILURE;
        }
        putchar((int)y);
        fwrite(x, 1, bytes, stdout);
    }
    free(x);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int64_t h = atoll(argv[2]), w = atoll(argv[3]);
    tt_dataset *set = tt_image_folder(argv[1], h, w, .resize = atoll(argv[4]));
    int rc = set ? dump(set, (size_t)(3 * h * w)) : EXIT_FAILURE;
    if (rc)
        tt_report();
    tt_dataset_free(set);
    return rc;
}
