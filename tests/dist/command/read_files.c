/* Reads files by the reader that their names end in, and prints "NAME STATUS TEXT", a line a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <tutti/datasets.h>

static tt_status read_any(const char *path) {
    const char *end = strrchr(path, '.');
    tt_value *value = NULL;
    tt_safetensors *tensors = NULL;
    tt_npz *arrays = NULL;
    tt_tensor *array = NULL;
    tt_status status = !strcmp(end, ".pt")            ? tt_torch_load(&value, path)
                       : !strcmp(end, ".safetensors") ? tt_safetensors_load(&tensors, path)
                       : !strcmp(end, ".npz")         ? tt_npz_read(&arrays, path)
                                                      : tt_npy_read(&array, path);
    if (status && (value || tensors || arrays || array))
        abort();
    tt_value_free(value);
    tt_safetensors_free(tensors);
    tt_npz_free(arrays);
    tt_tensor_free(array);
    return status;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        tt_status status = read_any(argv[i]);
        printf("%s %s %s\n", strrchr(argv[i], '/') + 1, tt_status_name(status), status ? tt_last_error() : "");
    }
    return EXIT_SUCCESS;
}
