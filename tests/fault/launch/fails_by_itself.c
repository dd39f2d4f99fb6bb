/* fails_by_itself RANK CALLS HOW: ranks reduce; after so many calls that rank fails by itself, reports and frees, as
 * any program does, while the others go on until they learn of it. HOW: 0 a bad label, 1 a full disk, 2 a negative
 * count, 3 an error of the program's own. */
#include <tutti/tutti.h>

#include <stdlib.h>

/* A label that there is no class for. */
static tt_status learn_nothing(void) {
    tt_tensor *logits = tt_zeros(TT_SHAPE(2, 3), TT_F32), *labels = tt_full(TT_SHAPE(2), TT_I64, 5);
    tt_tensor *loss = tt_cross_entropy(logits, labels);
    tt_tensor_free(loss);
    tt_tensor_free(labels);
    tt_tensor_free(logits);
    return loss ? TT_OK : tt_last_status();
}

static tt_status save_nothing(void) {
    tt_tensor *x = tt_zeros(TT_SHAPE(7), TT_F32);
    const char *name = "x";
    tt_status status = tt_safetensors_save("/dev/full", TT_NAMED_TENSORS(1, &name, &x), NULL, 0);
    tt_tensor_free(x);
    return status;
}

static tt_status fail_by_itself(tt_group *world, int how) {
    float x = 0;
    switch (how) {
    case 0:
        return learn_nothing();
    case 1:
        return save_nothing();
    case 2:
        return tt_all_reduce(world, &x, -1, TT_F32, TT_SUM);
    default:
        return tt_fail(TT_ERR_IO, "no more data");
    }
}

int main(int argc, char **argv) {
    tt_group *world = NULL;
    float x[100] = {0};
    if (argc != 4)
        return 2;
    tt_status status = tt_init_process_group(&world);
    for (int calls = 0; !status; calls++) {
        bool fails = tt_get_rank(world) == atoi(argv[1]) && calls == atoi(argv[2]);
        status = fails ? fail_by_itself(world, atoi(argv[3])) : tt_all_reduce(world, x, 100, TT_F32, TT_SUM);
    }
    tt_report();
    tt_destroy_process_group(world);
    return 1;
}
