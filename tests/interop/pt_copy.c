/* pt_copy FROM TO: reads a .pt file and writes what was in it. */
#include <stdio.h>
#include <tutti/checkpoint.h>

int main(int argc, char **argv) {
    tt_value *value;
    if (argc != 3) {
        fprintf(stderr, "usage: pt_copy FROM TO\n");
        return 2;
    }
    tt_status status = tt_torch_load(&value, argv[1]);
    if (!status)
        status = tt_torch_save(argv[2], value);
    tt_value_free(value);
    if (status)
        tt_report();
    return status ? 1 : 0;
}
