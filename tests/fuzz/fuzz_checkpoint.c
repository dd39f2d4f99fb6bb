/* The reader of a training run's state on any bytes: a model, its optimizer, scheduler, averages, scaler, generator and
 * loader. What is refused changes nothing; what is accepted can be saved and loaded again. */
#include <string.h>
#include <tutti/tutti.h>

#include "base/hash.h"
#include "fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_lr_scheduler *scheduler;
    tt_ema *ema;
    tt_grad_scaler *scaler;
    tt_generator *generator;
    tt_sampler *sampler;
    tt_dataset *dataset;
    tt_loader *loader;
} run;

static void must(bool sound) {
    if (!sound) {
        tt_report();
        abort();
    }
}

static tt_status save(const char *name) {
    return tt_checkpoint_save(fuzz_path(name), run.model, run.optimizer, &(tt_progress)TT_PROGRESS(.epoch = 3),
                              .scheduler = run.scheduler, .ema = run.ema, .scaler = run.scaler,
                              .generator = run.generator, .loader = run.loader);
}

static tt_status load(const char *name) {
    tt_progress progress = TT_PROGRESS_INIT;
    return tt_checkpoint_load(fuzz_path(name), run.model, run.optimizer, &progress, .scheduler = run.scheduler,
                              .ema = run.ema, .scaler = run.scaler, .generator = run.generator, .loader = run.loader);
}

static void end(void) {
    tt_loader_free(run.loader);
    tt_dataset_free(run.dataset);
    tt_sampler_free(run.sampler);
    tt_generator_free(run.generator);
    tt_grad_scaler_free(run.scaler);
    tt_ema_free(run.ema);
    tt_lr_scheduler_free(run.scheduler);
    tt_optimizer_free(run.optimizer);
    tt_module_free(run.model);
}

/* One step gives the optimizer its state. */
static void begin(void) {
    if (run.model)
        return;
    fuzz_folder_make();
    atexit(end);
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    run.model = tt_nn_linear(3, 2);
    run.optimizer = tt_adam(tt_module_parameters(run.model), 0.1);
    run.scheduler = tt_step_lr(run.optimizer, 2, .gamma = 0.5);
    run.ema = tt_ema_new(tt_module_parameters(run.model), 0.9);
    run.scaler = tt_grad_scaler_new(16);
    run.generator = tt_generator_new(5);
    run.sampler = tt_random_sampler(8);
    run.dataset = tt_tensor_dataset(tt_ones(TT_SHAPE(8, 3), TT_F32), tt_arange(8));
    run.loader = tt_loader_new(run.dataset, 2, run.sampler);
    must(run.loader && run.generator && run.scaler && run.ema && run.scheduler);
    must(!tt_backward(tt_sum(tt_module_forward(run.model, tt_ones(TT_SHAPE(1, 3), TT_F32)))));
    must(!tt_optimizer_step(run.optimizer) && !tt_ema_update(run.ema) && !save("first"));
}

static uint64_t digest_tensor(uint64_t h, tt_tensor *x) {
    must(x && tt_is_contiguous(x));
    return tt__fnv_bytes(h, tt_tensor_data(x), (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x)));
}

/* A number for all of the state. */
static uint64_t digest(void) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *lists[] = {
        tt_module_state_dict(run.model),           tt_optimizer_state_dict(run.optimizer),
        tt_lr_scheduler_state_dict(run.scheduler), tt_ema_state_dict(run.ema),
        tt_grad_scaler_state_dict(run.scaler),     tt_loader_state_dict(run.loader)};
    uint64_t h = TT__FNV;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        must(lists[l] != NULL);
        for (int64_t i = 0; i < lists[l]->count; i++) {
            h = tt__fnv_bytes(h, lists[l]->names[i], strlen(lists[l]->names[i]));
            h = digest_tensor(h, lists[l]->tensors[i]);
        }
    }
    return digest_tensor(h, tt_generator_get_state(run.generator));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint64_t first;
    begin();
    first = first ? first : digest();
    fuzz_write(fuzz_path("input"), data, size);
    tt_clear_error();
    tt_status status = load("input");
    if (status) {
        must(tt_last_status() == status && *tt_last_error());
        must(digest() == first);
        return 0;
    }
    uint64_t now = digest();
    must(!save("now") && !load("now") && digest() == now);
    must(!load("first") && digest() == first);
    return 0;
}
