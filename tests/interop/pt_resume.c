/* pt_resume FROM TO sgd|adamw: goes on with what PyTorch saved of a linear layer and its optimizer, {"model": ...,
 * "optimizer": ...}, for three steps, and writes the layer. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

static tt_status load(const char *path, tt_module *model, tt_optimizer *optimizer) {
    tt_value *file;
    tt_status status = tt_torch_load(&file, path);
    if (!status)
        status = tt_module_load_state_dict(model, tt_value_tensors(tt_value_find(file, "model")));
    if (!status)
        status = tt_optimizer_load_state_dict(optimizer, tt_value_tensors(tt_value_find(file, "optimizer")));
    tt_value_free(file);
    return status;
}

static tt_status train(tt_module *model, tt_optimizer *optimizer) {
    tt_status status = TT_OK;
    for (int step = 0; step < 3 && !status; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_full(TT_SHAPE(4, 3), TT_F32, 0.5 + step), *y = tt_ones(TT_SHAPE(4, 2), TT_F32);
        tt_optimizer_zero_grad(optimizer);
        status = tt_backward(tt_mse_loss(tt_module_forward(model, x), y));
        if (!status)
            status = tt_optimizer_step(optimizer);
    }
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: pt_resume FROM TO sgd|adamw\n");
        return 2;
    }
    tt_module *model = tt_nn_linear(3, 2);
    tt_optimizer *optimizer = !strcmp(argv[3], "sgd") ? tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9)
                                                      : tt_adamw(tt_module_parameters(model), 0.1, 0.01);
    tt_status status = load(argv[1], model, optimizer);
    if (!status)
        status = train(model, optimizer);
    tt_value *state = status ? NULL : tt_value_of_tensors(tt_module_state_dict(model));
    if (!status)
        status = tt_torch_save(argv[2], state);
    if (status)
        tt_report();
    tt_value_free(state);
    tt_optimizer_free(optimizer);
    tt_module_free(model);
    return status ? 1 : 0;
}
