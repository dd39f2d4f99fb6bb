/* pt_resume FROM TO OPTIMIZER: goes on with what PyTorch saved of a linear layer and its optimizer, {"model": ...,
 * "optimizer": ...}, for three steps, and writes the same again. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

static tt_status load(const char *path, tt_module *model, tt_optimizer *optimizer) {
    tt_value *file;
    tt_status status = tt_torch_load(&file, path);
    if (!status)
        status = tt_module_load_state_dict(model, tt_value_tensors(tt_value_find(file, "model")));
    if (!status)
        status = tt_optimizer_load_value(optimizer, tt_value_find(file, "optimizer"));
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

static tt_optimizer *optimizer_of(const char *name, const tt_named_tensors *params) {
    if (!strcmp(name, "sgd"))
        return tt_sgd(params, 0.1, .momentum = 0.9);
    if (!strcmp(name, "adamw"))
        return tt_adamw(params, 0.1, 0.01);
    if (!strcmp(name, "adam"))
        return tt_adam(params, 0.1, .amsgrad = true, .beta1 = 0.8);
    if (!strcmp(name, "rmsprop"))
        return tt_rmsprop(params, 0.01, .centered = true, .momentum = 0.5);
    if (!strcmp(name, "adagrad"))
        return tt_adagrad(params, 0.1);
    return tt_adadelta(params, 1.0);
}

static tt_status save(const char *path, tt_module *model, tt_optimizer *optimizer) {
    tt_value *file = tt_value_dict();
    tt_status status = tt_value_set(file, "model", tt_value_of_tensors(tt_module_state_dict(model)));
    if (!status)
        status = tt_value_set(file, "optimizer", tt_value_of_optimizer(optimizer));
    if (!status)
        status = tt_torch_save(path, file);
    tt_value_free(file);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: pt_resume FROM TO OPTIMIZER\n");
        return 2;
    }
    tt_module *model = tt_nn_linear(3, 2);
    tt_optimizer *optimizer = optimizer_of(argv[3], tt_module_parameters(model));
    tt_status status = optimizer ? load(argv[1], model, optimizer) : tt_last_status();
    if (!status)
        status = train(model, optimizer);
    if (!status)
        status = save(argv[2], model, optimizer);
    if (status)
        tt_report();
    tt_optimizer_free(optimizer);
    tt_module_free(model);
    return status ? 1 : 0;
}
