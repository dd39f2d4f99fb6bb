/* Calls of the program's functions, and with .graph replays of captured steps (tutti/graph.h): a graph for the pass and
 * one for the optimizer's step. Between the two replays the trainer checks the loss, clips gradients, or skips the
 * step. */
#include "trainer/run_state.h"

#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

tt_tensor *tt__trainer_forward(tt_trainer *t, tt_trainer_step_fn step, const tt_batch *batch) {
    if (t->a.autocast == TT_F32)
        return step(t, batch, t->a.user);
    TT_AUTOCAST(t->a.autocast);
    return step(t, batch, t->a.user);
}

/* Passes before the capture: the first ones make gradients and the optimizer's state. */
enum { PASSES_BEFORE = 3 };

static const char who[] = "tt_trainer_run";

static const tt_device *model_device(const tt_trainer *t) {
    const tt_named_tensors *params = tt_module_parameters(t->a.model);
    return params && params->count ? tt_tensor_device(params->tensors[0]) : TT_CPU;
}

tt_status tt__trainer_place_batch(const tt_trainer *t, tt_batch *b) {
    if (!t->a.graph)
        return TT_OK;
    b->x = tt_to_device(b->x, model_device(t));
    if (!b->x || !b->y)
        return b->x ? TT_OK : tt_last_status();
    b->y = tt_to_device(b->y, model_device(t));
    return b->y ? TT_OK : tt_last_status();
}

/* ---- the pass */

static bool is_of_form(const tt_tensor *x, const tt_tensor *still) {
    if (!x || !still)
        return !x && !still;
    const tt_shape a = tt_tensor_shape(x), b = tt_tensor_shape(still);
    return tt_tensor_dtype(x) == tt_tensor_dtype(still) && tt__shape_equal(&a, &b);
}

/* Make the tensors that captured passes read, from the first batch. */
static tt_status make_inputs(tt_trainer *t, tt_batch first) {
    tt__trainer_graphs *g = &t->graphs;
    if (!model_device(t)->graphs)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: .graph: expected a model on a device with graphs, as TT_CUDA(0), got %s", who,
                        tt_device_name(model_device(t)));
    TT__TRY(tt__trainer_place_batch(t, &first));
    g->x = tt_keep(tt_clone(first.x));
    g->y = first.y ? tt_keep(tt_clone(first.y)) : NULL;
    return g->x && (g->y || !first.y) ? TT_OK : tt_last_status();
}

/* Copy the batch to where captured passes read it. A batch of another shape is only put on the device: *fits :=
 * false. */
static tt_status take_inputs(tt_trainer *t, tt_batch *b, bool *fits) {
    tt__trainer_graphs *g = &t->graphs;
    if (!g->x)
        TT__TRY(make_inputs(t, *b));
    *fits = is_of_form(b->x, g->x) && is_of_form(b->y, g->y);
    if (!*fits)
        return tt__trainer_place_batch(t, b);
    TT__TRY(tt_copy(g->x, b->x));
    if (b->y)
        TT__TRY(tt_copy(g->y, b->y));
    b->x = g->x;
    b->y = g->y;
    return TT_OK;
}

static tt_status captured_pass(void *user) {
    tt_trainer *t = user;
    tt__trainer_graphs *g = &t->graphs;
    tt_tensor *loss = tt__trainer_forward(t, t->a.step, g->batch);
    if (loss && !g->loss)
        g->loss = tt_keep(tt_clone(tt_detach(loss)));
    else if (loss)
        TT__TRY(tt_copy(g->loss, tt_detach(loss)));
    return tt_backward(t->a.scaler ? tt_grad_scaler_scale(t->a.scaler, loss) : loss);
}

static tt_status replay_pass(tt_trainer *t) {
    tt__trainer_graphs *g = &t->graphs;
    if (!g->pass && !(g->pass = tt_graph_capture(model_device(t), 0, captured_pass, t)))
        return tt__fail_prefix("%s: .graph", who);
    g->replayed = true;
    return tt_graph_replay(g->pass);
}

tt_status tt__trainer_graph_pass(tt_trainer *t, const tt_batch *batch, double *loss) {
    tt__trainer_graphs *g = &t->graphs;
    tt_batch placed = *batch;
    bool fits;
    TT__TRY(take_inputs(t, &placed, &fits));
    g->batch = &placed;
    g->replayed = false;
    tt_status status = fits && g->passes >= PASSES_BEFORE ? replay_pass(t) : captured_pass(t);
    g->batch = NULL;
    g->passes += fits && !status;
    return status ? status : tt_item(g->loss, loss);
}

/* ---- the step */

static tt_status captured_step(void *user) { return tt_optimizer_step(((tt_trainer *)user)->a.optimizer); }

/* After a pass that was no replay, the gradients may be other tensors than those that were captured. */
tt_status tt__trainer_graph_step(tt_trainer *t) {
    tt__trainer_graphs *g = &t->graphs;
    if (!g->replayed)
        return captured_step(t);
    if (!g->step && !(g->step = tt_graph_capture(model_device(t), 0, captured_step, t)))
        return tt__fail_prefix("%s: .graph", who);
    return tt_graph_replay(g->step);
}

void tt__trainer_graphs_end(tt_trainer *t) {
    tt__trainer_graphs *g = &t->graphs;
    tt_graph_free(g->step);
    tt_graph_free(g->pass);
    tt_tensor_free(g->x);
    tt_tensor_free(g->y);
    tt_tensor_free(g->loss);
    *g = (tt__trainer_graphs){0};
}
