/* Copies FROM.npy or FROM.npz to TO by reading and writing it. */
#include <stdlib.h>
#include <string.h>
#include <tutti/datasets.h>

static tt_status copy_array(const char *from, const char *to) {
    tt_tensor *x = NULL;
    tt_status status = tt_npy_read(&x, from);
    if (!status)
        status = tt_npy_write(x, to);
    tt_tensor_free(x);
    return status;
}

static tt_status copy_archive(const char *from, const char *to) {
    tt_npz *file = NULL;
    tt_status status = tt_npz_read(&file, from);
    if (!status)
        status = tt_npz_write(to, tt_npz_tensors(file));
    tt_npz_free(file);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    bool archive = strstr(argv[1], ".npz") != NULL;
    if (archive ? copy_archive(argv[1], argv[2]) : copy_array(argv[1], argv[2])) {
        tt_report();
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
