/* What a C++ program gives to C to be called: operators, modules, hooks, data sets, samplers, traces. They do what they
 * say, live as long as they are used, and what they throw comes out of the call that ran them. On two ranks. */
#include "expect.hpp"

#include <cmath>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <vector>

namespace nn = tutti::nn;
using tutti::tensor;

/* An exception of the program's own. */
struct torn {
    int page;
};
template <class F> static int torn_page(F &&body) { return thrown_as(body, torn{0}).page; }

/* ---- operators */

/* x * sigmoid(b x) */
struct swish {
    static constexpr const char *name = "swish";
    double b;
    std::shared_ptr<int> alive;

    tensor forward(tutti::node &node, const std::vector<tensor> &in) {
        tensor x = in[0].contiguous(), y = tutti::empty_like(x);
        for (std::int64_t i = 0; i < x.numel(); i++)
            y.data<double>()[i] = x.data<double>()[i] / (1 + std::exp(-b * x.data<double>()[i]));
        node.save(x, "x");
        return y;
    }
    void backward(tutti::node &node) {
        EXPECT(node.wants(0));
        tensor x = node.saved(0), g = node.grad().contiguous(), dx = tutti::empty_like(x);
        for (std::int64_t i = 0; i < x.numel(); i++) {
            double at = x.data<double>()[i], s = 1 / (1 + std::exp(-b * at));
            dx.data<double>()[i] = g.data<double>()[i] * (s + b * at * s * (1 - s));
        }
        node.give(0, dx);
    }
};

/* x + y and x - y */
struct both_ways {
    static constexpr const char *name = "both_ways";
    static constexpr int outputs = 2;
    std::vector<tensor> forward(tutti::node &, const std::vector<tensor> &in) {
        std::vector<tensor> out;
        out.push_back(in[0] + in[1]);
        out.push_back(std::move((in[0] - in[1]).keep())); /* its own: handed over all the same */
        return out;
    }
    void backward(tutti::node &node) {
        tensor up = node.grad(0), down = node.grad(1);
        node.give(0, up ? up.clone() : tutti::zeros(tutti::shape(2)));
        EXPECT(!down);
        node.give(1, up);
    }
};

struct no_way_back {
    static constexpr const char *name = "no_way_back";
    tensor forward(tutti::node &, const std::vector<tensor> &in) { return tensor::lent(in[0].get()); }
};

struct fails {
    static constexpr const char *name = "fails";
    int in_forward, in_backward; /* 0: it doesn't; 1: a page is torn; 2: a call of Tutti fails */
    static void fail(int how) {
        if (how == 1)
            throw torn{7};
        if (how == 2)
            tutti::matmul(tutti::ones(tutti::shape(2)), tutti::ones(tutti::shape(3)));
    }
    tensor forward(tutti::node &, const std::vector<tensor> &in) {
        fail(in_forward);
        return in[0].clone();
    }
    void backward(tutti::node &node) {
        fail(in_backward);
        node.give(0, node.grad());
    }
};

static void operators() {
    auto alive = std::make_shared<int>(0);
    tutti::manual_seed(0);
    tensor x = tutti::randn(tutti::shape(4, 5)).to(TT_F64);
    x.requires_grad_();
    auto value = [&] { return tutti::sum(tutti::apply(swish{1.5, alive}, x)).item(); };
    {
        tensor y = tutti::apply(swish{1.5, alive}, x);
        EXPECT(alive.use_count() == 2 && y.requires_grad()); /* the record has its copy */
        tutti::backward(tutti::sum(y));
    }
    EXPECT(alive.use_count() == 1);
    double worst = 0, h = 1e-5;
    for (std::int64_t i = 0; i < x.numel(); i++) {
        tutti::no_grad none;
        double *at = x.data<double>() + i, before = *at;
        *at = before + h;
        double up = value();
        *at = before - h;
        worst = std::fmax(worst, std::fabs(x.grad().data<double>()[i] - (up - value()) / (2 * h)));
        *at = before;
    }
    EXPECT(worst < 1e-8 && alive.use_count() == 1);

    tensor a = tutti::full(tutti::shape(2), 3), b = tutti::full(tutti::shape(2), 1);
    a.requires_grad_(), b.requires_grad_();
    std::vector<tensor> out = tutti::apply(both_ways(), a, b);
    EXPECT(out[0].data<float>()[1] == 4 && out[1].data<float>()[1] == 2);
    EXPECT(tutti::reachable_leaves(out[1]).size() == 2);
    tutti::sum(out[0]).backward();
    EXPECT(a.grad().data<float>()[0] == 1 && b.grad().data<float>()[0] == 1);
    tensor same = tutti::apply(no_way_back(), a);
    EXPECT(tutti::equal(same, a) && !same.requires_grad());

    EXPECT(torn_page([&] { tutti::apply(fails{1, 0}, a); }) == 7);
    EXPECT(torn_page([&] { tutti::sum(tutti::apply(fails{0, 1}, a)).backward(); }) == 7);
    EXPECT(has(tutti::last_error(), "an exception of an unknown type"));
    EXPECT(thrown_by([&] { tutti::apply(fails{2, 0}, a); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([&] { tutti::sum(tutti::apply(fails{0, 2}, a)).backward(); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([&] { tutti::apply(fails{0, 0}, nullptr); }).status() != TT_OK);
}

/* A segment that is run again in backward, and one that throws. */
static void recomputation() {
    int runs = 0;
    tensor x = tutti::full(tutti::shape(2), 3), w = tutti::full(tutti::shape(2), 5);
    x.requires_grad_(), w.requires_grad_();
    auto segment = [&](const std::vector<tensor> &in) {
        runs++;
        return in[0] * in[1] * in[1];
    };
    tensor y = tutti::recompute(segment, x, w);
    EXPECT(runs == 1 && y.data<float>()[0] == 75 && tutti::reachable_leaves(y).size() == 2);
    tutti::sum(y).backward();
    EXPECT(runs == 2 && x.grad().data<float>()[0] == 25 && w.grad().data<float>()[1] == 30);
    auto throws = [](const std::vector<tensor> &in) -> tensor {
        if (in.size() == 1)
            throw torn{7};
        return in[0] * in[1];
    };
    EXPECT(torn_page([&] { tutti::recompute(throws, x); }) == 7);
    EXPECT(!tutti::is_anomaly_enabled());
}

/* ---- modules */

struct residual : tutti::module_class<residual> {
    tutti::module expand, contract;
    tensor gain;
    std::shared_ptr<int> alive;
    residual(int width, int hidden, std::shared_ptr<int> count)
        : module_class("Residual"), expand(add_module("expand", nn::linear(width, hidden))),
          contract(add_module("contract", nn::linear(hidden, width))),
          gain(register_parameter("gain", tutti::full(tutti::shape(1), 2))), alive(std::move(count)) {
        register_buffer("seen", tutti::zeros(tutti::shape(), TT_I64), true);
        if (width == 13)
            throw torn{13};
    }
    tensor forward(const tensor &x) { return x + gain * contract(tutti::relu(expand(x))); }
};

struct swap_pair : tutti::module_class<swap_pair> {
    static constexpr std::int64_t inputs = 2, outputs = 2;
    swap_pair() : module_class("SwapPair") {}
    std::vector<tensor> forward_many(const std::vector<tensor> &in) {
        std::vector<tensor> out;
        out.push_back(in[1] * 1);
        out.push_back(tensor::lent(in[0].get()));
        return out;
    }
};

struct halved : tutti::module_class<halved> {
    tutti::module inner;
    explicit halved(const tutti::module &m) : module_class("Halved", m), inner(tutti::module::lent(m.get())) {}
    tensor forward(const tensor &x) { return inner(x) * 0.5; }
};

struct moody : tutti::module_class<moody> {
    moody() : module_class("Moody") {}
    tensor forward(const tensor &x) {
        if (training())
            throw torn{3};
        return x.clone();
    }
};

static void modules() {
    auto alive = std::make_shared<int>(0);
    tensor x = tutti::ones(tutti::shape(2, 4));
    {
        tutti::manual_seed(0);
        tutti::module m = nn::sequential{{"in", nn::linear(4, 4)}, {"body", tutti::module_new<residual>(4, 8, alive)}};
        EXPECT(alive.use_count() == 2 && m.parameters()->count == 7 && m.buffers()->count == 1);
        EXPECT(tutti::find(m.parameters(), "body.gain").data<float>()[0] == 2);
        EXPECT(m.state_dict()->count == 7 && !tutti::find(m.state_dict(), "body.seen"));
        tutti::module body = m.child("body"), in = m.child(std::int64_t(0));
        EXPECT(body.class_name() == std::string("Residual") && m.child_count() == 2 && m.child_name(1) == "body");
        EXPECT(m.named_modules()->count == 5 && thrown_by([&] { m.child("leg"); }).status() == TT_ERR_NOT_FOUND);
        tutti::scope scope;
        tensor h = in(x), wanted = h + 2 * body.child("contract")(tutti::relu(body.child("expand")(h)));
        tensor y = m(x);
        EXPECT(tutti::equal(y, wanted));
        tutti::sum(y).backward();
        EXPECT(bool(tutti::find(m.parameters(), "body.gain").grad()));
        m.eval();
        EXPECT(!body.training());
    }
    EXPECT(alive.use_count() == 1);
    EXPECT(torn_page([&] { tutti::module_new<residual>(13, 8, alive); }) == 13 && alive.use_count() == 1);
    EXPECT(thrown_by([&] { tutti::module_new<residual>(0, 8, alive); }).status() == TT_ERR_INVALID);

    tutti::module moved = nn::linear(2, 2);
    moved.to(tutti::device("reference"));
    EXPECT(tutti::find(moved.parameters(), "weight").device() == tutti::device("reference"));

    tutti::module swap = tutti::module_new<swap_pair>();
    tensor a = tutti::full(tutti::shape(1), 1), b = tutti::full(tutti::shape(1), 2);
    std::vector<tensor> swapped = swap.forward_many({a, b}, 2);
    EXPECT(swapped[0].item() == 2 && swapped[1].item() == 1 && swapped[1].get() != a.get());
    EXPECT(thrown_by([&] { swap.forward_many({a}, 2); }).status() == TT_ERR_INVALID);

    tutti::module inner = nn::linear(4, 1), half = tutti::module_new<halved>(inner);
    EXPECT(half.parameters()->count == 2 && std::fabs(half(x).data<float>()[0] * 2 - inner(x).data<float>()[0]) < 1e-6);

    tutti::module moods = nn::sequential{tutti::module_new<moody>()};
    EXPECT(torn_page([&] { moods(x); }) == 3);
    moods.eval();
    EXPECT(tutti::equal(moods(x), x));
}

/* ---- hooks */

static void forward_hooks() {
    auto seen = std::make_shared<int>(0);
    tensor x = tutti::ones(tutti::shape(1));
    tutti::scope scope;
    {
        tutti::module relu = nn::relu();
        std::int64_t doubles = relu.register_forward_pre_hook([](tutti::module &, std::vector<tensor> &inputs) {
            inputs[0] = inputs[0] * 2; /* two of them, and one after */
        });
        relu.register_forward_hook(
            [seen](tutti::module &self, const std::vector<tensor> &in, std::vector<tensor> &out) {
                EXPECT(self.class_name() == std::string("ReLU") && in.size() == 1);
                out[0] = out[0] + in[0];
                ++*seen;
            });
        tutti::module moved = nn::sequential{std::move(relu)}; /* hooks go with the module */
        EXPECT(moved(x).item() == 4 && *seen == 1);
        moved.child(std::int64_t(0)).remove_hook(doubles);
        EXPECT(moved(x).item() == 2 && *seen == 2 && seen.use_count() == 2);
        EXPECT(thrown_by([&] { moved.remove_hook(doubles); }).status() == TT_ERR_NOT_FOUND);
    }
    EXPECT(seen.use_count() == 1);

    tutti::module relu = nn::relu();
    std::int64_t itself = 0;
    itself = relu.register_forward_pre_hook([seen, &itself](tutti::module &self, std::vector<tensor> &) {
        self.remove_hook(itself);
        ++*seen; /* what it holds is still there */
    });
    EXPECT(relu(x).item() == 1 && relu(x).item() == 1 && *seen == 3 && seen.use_count() == 1);
    std::int64_t bad = relu.register_forward_hook(
        [](tutti::module &, const std::vector<tensor> &, std::vector<tensor> &) { throw torn{5}; });
    EXPECT(torn_page([&] { relu(x); }) == 5 && has(tutti::last_error(), "a forward hook of a ReLU failed"));
    relu.remove_hook(bad);
    relu.register_forward_hook(
        [](tutti::module &, const std::vector<tensor> &, std::vector<tensor> &out) { out.clear(); });
    EXPECT(has(thrown_by([&] { relu(x); }).what(), "expected 1 tensors, got 0"));
}

static void grad_hooks() {
    auto seen = std::make_shared<double>(0);
    {
        tensor w = tutti::full(tutti::shape(2), 3);
        w.requires_grad_();
        w.register_post_accumulate_grad_hook([seen](tensor &x) { *seen += x.grad().data<float>()[0]; });
        tutti::sum(w * w).backward();
        EXPECT(*seen == 6 && seen.use_count() == 2);
        w.register_post_accumulate_grad_hook([](tensor &) { throw torn{9}; });
        EXPECT(torn_page([&] { tutti::sum(w * w).backward(); }) == 9);
    }
    EXPECT(seen.use_count() == 1);
    tensor no_leaf = tutti::ones(tutti::shape(2));
    EXPECT(thrown_by([&] { no_leaf.register_post_accumulate_grad_hook([seen](tensor &) {}); }).status() ==
           TT_ERR_STATE);
    EXPECT(seen.use_count() == 1);
}

/* ---- data */

static void data_sets() {
    auto alive = std::make_shared<int>(0);
    auto get = [alive](std::int64_t i, void *x, void *y) {
        if (i == 5)
            throw torn{5};
        *static_cast<float *>(x) = float(i);
        *static_cast<std::int64_t *>(y) = 10 * i;
    };
    tutti::dataset_options o;
    o.y = tt_spec(TT_I64, tutti::shape());
    o.name = "pages";
    tt_tensor_spec x = tt_spec(TT_F32, tutti::shape(1));
    {
        tutti::dataset pages = tutti::dataset_from(6, get, x, o);
        EXPECT(alive.use_count() == 3 && pages.y().dtype == TT_I64 && pages.x().shape.ndim == 1 && !pages.inputs());
        float to_x = 0;
        std::int64_t to_y = 0;
        pages.get_example(3, &to_x, &to_y);
        EXPECT(to_x == 3 && to_y == 30);
        EXPECT(torn_page([&] { pages.get_example(5, &to_x, &to_y); }) == 5);
        tutti::loader all(pages, 4, tutti::in_order());
        EXPECT(all.next()->size == 4);
        EXPECT(torn_page([&] { all.next(); }) == 5 && has(tutti::last_error(), "pages"));
        EXPECT(thrown_by([&] { all.next(); }).status() == TT_ERR_INVALID); /* as from then on */
        all.restart();
        EXPECT(all.next()->y.data<std::int64_t>()[3] == 30);
    }
    EXPECT(alive.use_count() == 2);
    EXPECT(thrown_by([&] { tutti::dataset_from(-1, get, x, o); }).status() == TT_ERR_INVALID);
    EXPECT(alive.use_count() == 2);

    int batches = 0;
    o.get_batch = [&batches](const std::int64_t *indices, std::int64_t n, void *to_x, void *to_y) {
        batches++;
        for (std::int64_t k = 0; k < n; k++) {
            static_cast<float *>(to_x)[k] = float(-indices[k]);
            static_cast<std::int64_t *>(to_y)[k] = indices[k];
        }
    };
    tutti::dataset whole = tutti::dataset_from(6, get, x, o), tail = tutti::subset(whole, 4, 6);
    tutti::dataset joined = tutti::concat_dataset({tail, whole});
    tutti::loader loader(joined, 8, tutti::in_order());
    EXPECT(loader.next()->x.data<float>()[1] == -5 && batches > 0 && joined.size() == 8);
}

static void samplers() {
    tutti::dataset set = tutti::tensor_dataset(tutti::arange(10));
    EXPECT(set.inputs().numel() == 10 && !set.targets());
    auto alive = std::make_shared<int>(0);
    {
        tutti::sampler backwards =
            tutti::sampler_from(10, 3, [alive](std::int64_t epoch, std::int64_t *to, std::int64_t n) {
                if (epoch == 2)
                    throw torn{2};
                for (std::int64_t i = 0; i < n; i++)
                    to[i] = 9 - i - epoch;
            });
        tutti::loader loader(set, 3, backwards);
        EXPECT(loader.next()->x.data<std::int64_t>()[0] == 9);
        backwards.set_epoch(1);
        EXPECT(backwards.indices() == (std::vector<std::int64_t>{8, 7, 6}) && alive.use_count() == 2);
        backwards.set_epoch(2);
        EXPECT(torn_page([&] { backwards.indices(); }) == 2);
    }
    EXPECT(alive.use_count() == 1);
    tutti::generator first(5), again(5);
    tutti::sampler chosen = tutti::subset_random_sampler(10, {2, 4, 6}, first);
    tutti::sampler twin = tutti::subset_random_sampler(10, {2, 4, 6}, again);
    EXPECT(chosen.size() == 3 && chosen.indices() == twin.indices() && chosen.seed() == 0);
    tutti::distributed_sampler_options o;
    o.seed = 7;
    EXPECT(tutti::distributed_sampler(10, 2, 0, o).seed() == 7);
}

/* ---- traces, and what is left of exceptions */

static void traces(tutti::group &world) {
    auto events = std::make_shared<std::vector<tt_reducer_event_kind>>();
    tutti::module model = nn::linear(3, 2);
    {
        tutti::module ddp = tutti::ddp(model, world);
        tutti::reducer reducer = tutti::ddp_reducer(ddp);
        reducer.set_trace([events](const tt_reducer_event &event) { events->push_back(event.kind); });
        tutti::scope scope;
        tutti::sum(ddp(tutti::ones(tutti::shape(1, 3)))).backward();
        EXPECT(events->size() == 4 && events->front() == TT_REDUCER_READY && events->back() == TT_REDUCER_END);
        {
            tutti::no_sync no_sync(ddp);
            tutti::sum(ddp(tutti::ones(tutti::shape(1, 3)))).backward();
        }
        EXPECT(events->size() == 4); /* nothing was averaged */
        tt_ddp_logging_data data = tutti::ddp_logging_data(ddp);
        EXPECT(data.steps == 1 && data.parameters == 2 && data.buckets == 1);
        EXPECT(data.gradient_bytes == reducer.bucket_bytes(0) && reducer.bucket_bytes(1) == 0);
        EXPECT(reducer.bucket_of(0) == 0 && reducer.bucket_of(9) == -1);
        reducer.set_trace([events](const tt_reducer_event &) { throw torn{4}; });
        EXPECT(torn_page([&] { tutti::sum(ddp(tutti::ones(tutti::shape(1, 3)))).backward(); }) == 4);
        EXPECT(events.use_count() == 2);
    }
    EXPECT(events.use_count() == 1);
    EXPECT(thrown_by([&] { tutti::no_sync no_sync(model); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::ddp_reducer(model); }).status() == TT_ERR_INVALID);
}

/* One rank: the step that nobody gives anything to is the first. */
static void joins(tutti::group &world) {
    tutti::module model = nn::linear(3, 2), ddp = tutti::ddp(model, world);
    int before = 0, after = 0;
    tutti::join_options o;
    o.examples = 4;
    o.before_step = [&] { before++; };
    o.after_step = [&] { after++; };
    {
        tutti::join join(ddp, o);
        tutti::scope scope;
        join.set_examples(3);
        tutti::sum(ddp(tutti::ones(tutti::shape(1, 3)))).backward();
        EXPECT(join.steps() == 1);
        join.wait();
        EXPECT(join.steps() == 0 && before == 1 && after == 0);
        EXPECT(thrown_by([&] { join.set_examples(0); }).status() == TT_ERR_INVALID);
        EXPECT(thrown_by([&] { tutti::join second(ddp); }).status() == TT_ERR_STATE);
    }
    o.before_step = [] { throw torn{5}; };
    tutti::join join(ddp, o);
    EXPECT(torn_page([&] { join.wait(); }) == 5);
}

/* ---- communication hooks */

static tutti::comm_hook halving_hook(const std::shared_ptr<std::vector<int>> &stages) {
    tutti::comm_hook hook;
    hook.name = "halving", hook.settings = "by 2";
    hook.next = [stages](const tt_bucket &b, int stage) {
        tutti::work made;
        stages->push_back(stage);
        if (stage == 0) {
            tutti::call_options o;
            o.work = &made;
            tutti::all_reduce(tutti::group::lent(b.group), {b.data, b.count, b.dtype}, TT_AVG, o);
        } else {
            for (std::int64_t i = 0; i < b.count; i++)
                static_cast<float *>(b.data)[i] /= 2;
        }
        return made;
    };
    hook.attach = [stages](const tt_bucket *, std::int64_t count) { stages->push_back(100 + int(count)); };
    hook.detach = [stages] { stages->push_back(200); };
    return hook;
}

static void own_hooks(tutti::group &world) {
    auto stages = std::make_shared<std::vector<int>>();
    tutti::module model = nn::linear(3, 1);
    {
        tutti::module ddp = tutti::ddp(model, world);
        tutti::ddp_register_comm_hook(ddp, halving_hook(stages));
        tutti::scope scope;
        tutti::sum(ddp(tutti::ones(tutti::shape(1, 3)))).backward();
        EXPECT(tutti::find(ddp.parameters(), "bias").grad().item() == 0.5);
        EXPECT(*stages == (std::vector<int>{101, 0, 1}) && stages.use_count() > 1);
        tutti::ddp_register_comm_hook(ddp, {});
        EXPECT(stages->back() == 200 && stages.use_count() == 1);
        tutti::comm_hook torn_hook;
        torn_hook.name = "torn", torn_hook.next = [](const tt_bucket &, int) -> tutti::work { throw torn{5}; };
        tutti::ddp_register_comm_hook(ddp, torn_hook);
        EXPECT(thrown_by([&] { tutti::ddp_register_comm_hook(model, {}); }).status() == TT_ERR_INVALID);
    }
    tutti::reducer reducer(world, {{"w", 4, TT_F32}});
    reducer.set_comm_hook(halving_hook(stages));
    std::fill_n(reducer.gradient(0), 4, 8.F);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT(reducer.gradient(0)[3] == 4.F);
    reducer.set_comm_hook({});
    EXPECT(stages.use_count() == 1);
}

static void hooks_of_the_library(tutti::group &world) {
    tutti::module model = nn::linear(64, 48);
    tutti::module ddp = tutti::ddp(model, world);
    tutti::int8_hook_options int8;
    tutti::top_k_hook_options top_k;
    tutti::powersgd_hook_options power;
    int8.block = 64, top_k.density = 0.1, power.rank = 2, power.start = -1, power.seed = 3;
    const std::function<void()> sets[] = {
        [&] { tutti::all_reduce_hook(ddp); },  [&] { tutti::f16_hook(ddp); },
        [&] { tutti::bf16_hook(ddp); },        [&] { tutti::int8_hook(ddp, int8); },
        [&] { tutti::top_k_hook(ddp, top_k); }, [&] { tutti::powersgd_hook(ddp, power); },
    };
    for (const auto &set : sets) {
        tutti::scope scope;
        set();
        tutti::sum(ddp(tutti::ones(tutti::shape(2, 64)))).backward();
        tutti::comm_hook_load_state_dict(ddp, tutti::comm_hook_state_dict(ddp));
    }
    EXPECT(tutti::find(tutti::comm_hook_state_dict(ddp), "powersgd.q.weight").numel() == 2 * 64);
    power.rank = -1;
    EXPECT(thrown_by([&] { tutti::powersgd_hook(ddp, power); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::f16_hook(model); }).status() == TT_ERR_INVALID);
}

/* What a callback threw is no longer thrown once its call has failed in C, unseen. */
static void old_exceptions_are_forgotten() {
    tutti::module moods = tutti::module_new<moody>();
    tensor x = tutti::ones(tutti::shape(2));
    EXPECT(!tt_module_forward(moods.get(), x.get()));
    tutti::error e = thrown_by([&] { tutti::matmul(x, tutti::ones(tutti::shape(3))); });
    EXPECT(e.status() == TT_ERR_SHAPE);
    tutti::clear_error();
    EXPECT(std::string(tutti::last_error()).empty());
}

/* A run whose step, display and metrics are C++; what a step throws comes out of it. */
static void trainer(tutti::group &world) {
    const std::string logs = own_path(".run." + std::to_string(world.rank()));
    tutti::dataset digits = tutti::digits(64, 1);
    tutti::sampler sampler = tutti::distributed_sampler(64, 2, world.rank());
    tutti::loader loader(digits, 8, sampler), test(digits, 32, tutti::in_order());
    tutti::module model = tutti::nn::sequential{tutti::nn::flatten(), tutti::nn::linear(784, 10)};
    tutti::optimizer sgd = tutti::sgd(model.parameters(), 0.01);
    tutti::summary_writer metrics(logs, {/* no_events: */ true, false});
    int reports = 0;
    tutti::trainer_options options;
    options.group = world.get(), options.sampler = &sampler, options.epochs = 2, options.eval_loader = &test;
    options.metrics = &metrics;
    options.display = [&reports](const tt_trainer_report &report) {
        reports += report.event == TT_TRAINER_EPOCH;
        throw std::runtime_error("no screen");
    };
    auto step = [](tutti::trainer &t, const tutti::batch &b) {
        t.add_metric("examples", double(b.size), b.size);
        return tutti::cross_entropy(t.model()(b.x), b.y);
    };
    int hooked = 0;
    options.comm_hook = [&hooked](tutti::module &ddp) { tutti::bf16_hook(ddp), hooked++; };
    tt_trainer_result result = tutti::trainer_run(model, sgd, loader, step, options);
    EXPECT(hooked == 1);
    EXPECT(result.reason == TT_TRAINER_FINISHED && result.steps == 8 && result.best > 0);
    EXPECT(reports == (world.rank() == 0 ? 2 : 0));
    const std::vector<double> spread = {1, -2, 0.5};
    metrics.add_histogram("spread", spread.data(), 3, 8);
    metrics.add_text("note", "done", 8), metrics.flush();
    EXPECT(metrics.log_dir() == logs);
    auto stops = [&](tutti::trainer &t, const tutti::batch &b) {
        if (t.steps() == 2 && !t.evaluating())
            t.stop();
        return step(t, b);
    };
    EXPECT(tutti::trainer_run(model, sgd, loader, stops, options).steps == 3);
    auto throws = [](tutti::trainer &t, const tutti::batch &) -> tutti::tensor {
        throw std::runtime_error("epoch " + std::to_string(t.epoch()));
    };
    EXPECT(thrown_as([&] { tutti::trainer_run(model, sgd, loader, throws, options); }, std::runtime_error("")).what() ==
           std::string("epoch 0"));
    unlink((logs + "/scalars.csv").c_str());
    rmdir(logs.c_str());
}

/* ---- processes, of a rank that has a group and threads of its own */

static void processes() {
    std::vector<float> weights = {1, 2, 3};
    tutti::spawn_options meet;
    meet.rendezvous = true;
    tutti::spawn(
        [&](int rank) {
            tutti::group own = tutti::init_process_group();
            tutti::all_reduce(own, weights, TT_SUM);
            return own.world_size() == 2 && own.rank() == rank && weights[2] == 6 ? 0 : 1;
        },
        2, meet);
    EXPECT(weights[2] == 3);

    tutti::error known = thrown_by([] { tutti::spawn([](int) { throw tutti::error(TT_ERR_IO, "no page"); }, 1); });
    EXPECT(known.status() == TT_ERR_PROCESS && has(known.what(), "process 0 terminated with exit code 1 (pid "));
    EXPECT(has(known.what(), ": TT_ERR_IO: no page"));
    tutti::error other = thrown_by([] { tutti::spawn([](int) { throw std::out_of_range("page 7"); }, 1); });
    EXPECT(has(other.what(), "an exception: page 7"));
    EXPECT(thrown_by([] { tutti::spawn([](int) {}, 0); }).status() == TT_ERR_INVALID);

    tutti::process_context waiting = tutti::start_processes(
        [](int) {
            for (;;)
                pause();
        },
        2);
    EXPECT(!waiting.join(0) && waiting.pids().size() == 2 && !waiting.failure());
    waiting.kill(SIGKILL);
    tutti::error killed = thrown_by([&] { waiting.join(); });
    EXPECT(has(killed.what(), "terminated with signal SIGKILL") && waiting.failure()->exit_code == -SIGKILL);
    tutti::process_context dropped = std::move(waiting);
}

int main() {
    return main_of([](tutti::group &world) {
        operators();
        recomputation();
        modules();
        forward_hooks();
        grad_hooks();
        data_sets();
        samplers();
        traces(world);
        joins(world);
        own_hooks(world);
        hooks_of_the_library(world);
        trainer(world);
        old_exceptions_are_forgotten();
        processes();
    });
}
