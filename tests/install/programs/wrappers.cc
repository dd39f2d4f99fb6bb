/* The wrappers of tutti.hpp, on two ranks; callbacks.cc has those that take functions. */
#include "expect.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace nn = tutti::nn;

/* Owners can be moved, and only moved. */
template <class T> static constexpr bool moves_only() {
    return std::is_nothrow_move_constructible_v<T> && std::is_move_assignable_v<T> &&
           !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_destructible_v<T>;
}
static_assert(moves_only<tutti::group>() && moves_only<tutti::work>() && moves_only<tutti::store>());
static_assert(moves_only<tutti::reducer>() && moves_only<tutti::tensor>() && moves_only<tutti::module>());
static_assert(moves_only<tutti::optimizer>() && moves_only<tutti::dataset>() && moves_only<tutti::sampler>());
static_assert(std::is_move_constructible_v<tutti::loader> && !std::is_copy_constructible_v<tutti::loader>);
static_assert(!std::is_copy_constructible_v<tutti::scope> && !std::is_move_constructible_v<tutti::scope>);
static_assert(moves_only<tutti::store_server>() && moves_only<tutti::scope_object>());
static_assert(moves_only<tutti::process_context>() && moves_only<tutti::elastic>());
static_assert(moves_only<tutti::generator>() && moves_only<tutti::safetensors>());
static_assert(moves_only<tutti::deferred_backward>() && moves_only<tutti::pipeline>());
static_assert(!std::is_copy_constructible_v<tutti::no_grad> && !std::is_move_constructible_v<tutti::no_grad>);

/* A tensor is no buffer. */
static_assert(!std::is_constructible_v<tutti::buffer, tutti::tensor &> &&
              !std::is_constructible_v<tutti::buffer, tt_tensor *>);
static_assert(!std::is_constructible_v<tutti::const_buffer, const tutti::tensor &>);
static_assert(!std::is_constructible_v<tutti::const_buffer, const tt_tensor *, std::int64_t>);
static_assert(!std::is_constructible_v<tutti::buffer, const std::vector<float> &>, "what is written is not const");
static_assert(std::is_constructible_v<tutti::const_buffer, const std::vector<float> &>);

static tutti::init_process_group_options alone_options() {
    static tutti::store memory = tutti::hash_store();
    tutti::init_process_group_options o;
    o.store = memory.get(), o.world_size = 1;
    return o;
}

static void own_stores() {
    auto kept = std::make_shared<std::map<std::string, std::string>>();
    tutti::store_functions f;
    f.name = "a map";
    f.set = [kept](const std::string &key, const std::string &value) { (*kept)[key] = value; };
    f.get = [kept](const std::string &key, std::int64_t) {
        if (!kept->count(key))
            throw tutti::error(TT_ERR_TIMEOUT, "nothing under " + key);
        return kept->at(key);
    };
    f.add = [kept](const std::string &key, std::int64_t delta) {
        return std::stoll((*kept)[key] = std::to_string(std::atoll((*kept)[key].c_str()) + delta));
    };
    f.wait = [](const std::vector<std::string> &, std::int64_t) {};
    tutti::error lacks = thrown_by([&] { tutti::custom_store(f); });
    EXPECT(lacks.status() == TT_ERR_INVALID && has(lacks.what(), "check"));
    f.check = [kept](const std::vector<std::string> &keys) { return kept->count(keys.at(0)) == 1; };
    f.compare_set = [kept](const std::string &key, const std::string &expected, const std::string &desired) {
        return (*kept)[key] == expected ? (*kept)[key] = desired : (*kept)[key];
    };
    f.delete_key = [kept](const std::string &key) { return kept->erase(key) == 1; };
    f.append = [kept](const std::string &key, const std::string &value) { (*kept)[key] += value; };
    tutti::store own = tutti::custom_store(f, 50);
    own.set("k", std::string("a\0b", 3));
    own.append("k", "c");
    EXPECT(own.get("k") == std::string("a\0bc", 4) && own.add("n", 4) == 4 && own.check_keys({"n"}));
    EXPECT(own.compare_set("n", "4", "5") == "5" && own.delete_key("n") && !own.check_keys({"n"}));
    own.wait({"k"});
    EXPECT(has(thrown_by([&] { own.get("none"); }).what(), "nothing under none") && own.timeout_ms() == 50);
    EXPECT(thrown_by([&] { own.num_keys(); }).status() == TT_ERR_UNSUPPORTED);
    f.num_keys = [kept] { return std::int64_t(kept->size()); };
    EXPECT(tutti::custom_store(f).num_keys() == 1);
}

static void stores() {
    tutti::store memory = tutti::hash_store(1000), view = tutti::prefix_store("p", memory);
    memory.set("k", std::string("a\0b", 3));
    EXPECT(memory.get("k") == std::string("a\0b", 3));
    EXPECT(memory.add("n", 2) == 2 && view.add("n", 5) == 5 && memory.add("p/n", 1) == 6);
    EXPECT(memory.compare_set("k", std::string("a\0b", 3), "c") == "c");
    memory.append("k", "d");
    memory.wait({"k", "n"}, 100);
    EXPECT(memory.get("k") == "cd" && memory.check_keys({"k", "n"}) && !memory.check_keys({"none"}));
    EXPECT(memory.delete_key("k") && !memory.delete_key("k") && memory.num_keys() == 2);
    memory.set_timeout_ms(10);
    tutti::error missing = thrown_by([&] { memory.get("none"); });
    EXPECT(missing.status() == TT_ERR_TIMEOUT && has(missing.what(), "none"));
    EXPECT(std::strcmp(missing.name(), "TT_ERR_TIMEOUT") == 0);

    memory.multi_set({{"a", "1"}, {"b", std::string("2\0", 2)}});
    EXPECT(memory.multi_get({"b", "a"}) == (std::vector<std::string>{std::string("2\0", 2), "1"}));
    EXPECT(view.list_keys() == std::vector<std::string>{"n"} && memory.list_keys().size() == 4);
    memory.barrier("gate", 1);
    EXPECT(memory.timeout_ms() == 10);

    tutti::store_server service("127.0.0.1", 0);
    EXPECT(service.port() > 0 && tutti::tcp_store("127.0.0.1", service.port()).add("n", 3) == 3);

    tutti::tcp_store_options serve;
    serve.is_server = true;
    tutti::store server = tutti::tcp_store("127.0.0.1", 0, serve),
                 client = tutti::tcp_store("127.0.0.1", server.port());
    server.set("x", "y");
    EXPECT(client.get("x") == "y");
    tutti::store moved = std::move(client);
    EXPECT(!client.get() && moved.get("x") == "y");

    std::string path = own_path(".store");
    {
        tutti::store file = tutti::file_store(path);
        file.set("x", "z");
        EXPECT(file.get("x") == "z");
    }
    unlink(path.c_str());

    tutti::etcd_store_options nowhere;
    nowhere.timeout_ms = 1, nowhere.prefix = "job";
    tutti::error gone = thrown_by([&] { tutti::etcd_store("http://127.0.0.1:1", nowhere); });
    EXPECT(gone.status() == TT_ERR_TIMEOUT || gone.status() == TT_ERR_UNSUPPORTED); /* without libcurl */
}

static void buffers(tutti::group &world) {
    int rank = world.rank(), other = 1 - rank;
    std::vector<float> x = {1, 2, 3};
    tutti::all_reduce(world, x, TT_SUM);
    EXPECT(x[0] == 2 && x[2] == 6);
    std::array<double, 2> y = {double(rank), 4};
    tutti::all_reduce(world, y, TT_AVG);
    EXPECT(y[0] == 0.5 && y[1] == 4);
    std::int32_t z[] = {rank, rank};
    tutti::reduce(world, z, TT_MAX, 0);
    EXPECT(rank != 0 || z[1] == 1);
    tutti::broadcast(world, {z, 1}, 1);
    EXPECT(z[0] == 1);

    const std::vector<std::int64_t> mine = {rank + 10};
    std::vector<std::int64_t> all(2), two(2), one(1);
    tutti::all_gather(world, mine, all);
    EXPECT(all[0] == 10 && all[1] == 11);
    tutti::gather(world, mine, rank == 0 ? tutti::buffer(two) : tutti::buffer(nullptr), 0);
    EXPECT(rank != 0 || two[1] == 11);
    tutti::scatter(world, all, one, 0);
    EXPECT(one[0] == 10 + rank);
    tutti::reduce_scatter(world, all, one, TT_SUM);
    EXPECT(one[0] == 2 * (10 + rank));
    tutti::all_to_all(world, all, two);
    EXPECT(two[0] == 10 + rank && two[1] == 10 + rank);
    EXPECT(thrown_by([&] { tutti::all_gather(world, mine, one); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([&] { tutti::all_gather(world, mine, x); }).status() == TT_ERR_DTYPE);

    tutti::work sent = tutti::isend(world, mine, other);
    int from = -1;
    tutti::call_options o;
    o.source = &from;
    tutti::recv(world, one, TT_ANY_SOURCE, o);
    sent.wait();
    EXPECT(one[0] == 10 + other && from == other && sent.is_completed());
    tutti::work received = tutti::irecv(world, one, other);
    std::atomic<int> called{-1};
    received.add_done_callback([&](tt_status status, int source) { called = status ? -2 : source; });
    tutti::send(world, mine, other);
    while (!received.wait_for(1000))
        ;
    EXPECT(received.source_rank() == other);
    while (called == -1)
        std::this_thread::yield();
    EXPECT(called == other);
    tutti::call_options later;
    tutti::work pending;
    later.work = &pending;
    tutti::all_reduce(world, x, TT_SUM, later);
    pending.wait();
    EXPECT(x[0] == 4);
    tutti::barrier(world);
    tutti::monitored_barrier(world);
    EXPECT(thrown_by([] { tutti::work().wait(); }).status() == TT_ERR_INVALID);
}

/* Rank r gives r + 1 elements. */
static void uneven(tutti::group &world) {
    int rank = world.rank(), other = 1 - rank;
    std::vector<std::int32_t> mine(std::size_t(rank + 1), rank), all(3, -1), apart(4, -1), to(3), from(4, -1);
    tutti::all_gather_v(world, mine, all, {1, 2});
    EXPECT(all == (std::vector<std::int32_t>{0, 1, 1}));
    tutti::all_gather_v(world, mine, apart, tutti::split({1, 2}, {3, 0}));
    EXPECT(apart == (std::vector<std::int32_t>{1, 1, -1, 0}));
    EXPECT(thrown_by([&] { tutti::all_gather_v(world, mine, all, {1, 3}); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([&] { tutti::all_gather_v(world, mine, all, {1}); }).status() == TT_ERR_INVALID);

    /* Rank 0 keeps 1 and sends 2; rank 1 keeps 2 and sends 1. */
    for (int i = 0; i < 3; i++)
        to[std::size_t(i)] = 10 * rank + i;
    if (rank == 0) {
        tutti::all_to_all_v(world, to, {1, 2}, {from.data(), 2}, {1, 1});
        EXPECT(from == (std::vector<std::int32_t>{0, 10, -1, -1}));
    } else {
        tutti::all_to_all_v(world, to, {1, 2}, from, tutti::split({2, 2}, {2, 0}));
        EXPECT(from == (std::vector<std::int32_t>{11, 12, 1, 2}));
    }

    float x[] = {1, 2};
    std::vector<float> y = {float(rank)};
    tutti::all_reduce_coalesced(world, {x, y}, TT_SUM);
    EXPECT(x[1] == 4 && y[0] == 1);
    EXPECT(thrown_by([&] { tutti::all_reduce_coalesced(world, {x, mine}, TT_SUM); }).status() == TT_ERR_DTYPE);

    std::int32_t out[] = {rank}, in[] = {-1};
    tutti::batch_isend_irecv(world, {tutti::send_op(out, other), tutti::recv_op(in, other)});
    EXPECT(in[0] == other);
    in[0] = -1;
    tutti::work first = tutti::isend(world, out, other), second = tutti::irecv(world, in, other);
    tutti::wait_all({first, second});
    EXPECT(in[0] == other && second.source_rank() == other);
    std::vector<tutti::work> works(2);
    works[0] = tutti::isend(world, out, other), works[1] = tutti::irecv(world, in, other);
    tutti::wait_all(works);
    EXPECT(works[1].is_completed());
}

static void symmetric_memory(tutti::group &world) {
    tutti::symmetric<float> x = tutti::group_alloc<float>(world, 5), taken = x;
    EXPECT(x.size() == 5 && x[4] == 0);
    for (float &one : x)
        one = float(world.rank());
    tutti::all_reduce(world, x, TT_SUM);
    EXPECT(x[0] == 1 && taken.data()[4] == 1);
    tutti::group_free(world, x);
    EXPECT(!x.data() && x.size() == 0);
    EXPECT(thrown_by([&] { tutti::group_alloc<float>(world, -1); }).status() == TT_ERR_INVALID);
    tutti::publish_progress_options o;
    o.epoch = 1, o.samples = 32;
    tutti::publish_progress(1, 0.5, o);
}

static void groups(tutti::group &world) {
    EXPECT(world && world.world_size() == 2 && world.backend() == "native");
    EXPECT(world.global_rank(1) == 1 && world.group_rank(0) == 0);
    world.set_timeout_ms(60000);
    EXPECT(world.timeout_ms() == 60000);
    tutti::group first = tutti::new_group(world, {0});
    EXPECT(bool(first) == (world.rank() == 0));
    tutti::group own = tutti::group_split(world, world.rank(), 0);
    EXPECT(own && own.world_size() == 1);
    first = std::move(own);
    EXPECT(first.world_size() == 1 && !own);
}

/* Ranks call different things: both are told who did what where. */
static void mismatch(tutti::group &world) {
    tutti::group pair = tutti::new_group(world, {0, 1});
    float x[2] = {};
    tutti::error e = thrown_by([&] {
        if (pair.rank() == 0)
            tutti::all_reduce(pair, x, TT_SUM);
        else
            tutti::reduce(pair, x, TT_SUM, 0);
        tutti::barrier(pair);
    });
    EXPECT(e.status() == TT_ERR_MISMATCH);
    EXPECT(has(e.what(), "rank 1 called reduce(") || has(e.what(), "rank 1 called reduce_"));
    EXPECT(has(e.what(), "wrappers.cc:"));
    tutti::group aborted = tutti::new_group(world, {0, 1});
    aborted.abort("enough");
    e = thrown_by([&] { tutti::barrier(aborted); });
    EXPECT(e.status() == TT_ERR_ABORTED);
}

static void reducing(tutti::group &world) {
    tutti::reducer reducer(world, {{"w", 3}, {"b", 1}});
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < (i ? 1 : 3); k++)
            reducer.gradient(i)[k] = float(world.rank());
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT(reducer.gradient<float>(0)[2] == 0.5f && reducer.bucket_count() >= 1);
    reducer.mark_unused(1);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT(reducer.was_used(0) && !reducer.was_used(1));
}

static void piping(tutti::group &world) {
    tutti::manual_seed(3);
    tutti::module model = nn::sequential{nn::linear(4, 8), nn::relu(), nn::linear(8, 3)};
    tutti::pipeline_options o;
    o.schedule = TT_PIPELINE_ZERO_BUBBLE, o.split = {2, 1};
    EXPECT(tutti::pipeline_part_count(model) == 3 && has(tutti::schedule_name(o.schedule), "zero-bubble"));
    tutti::pipeline pipe(world, model, 2, o);
    tutti::tensor x = tutti::full(tutti::shape(4, 4), 0.5), y = tutti::zeros(tutti::shape(4), TT_I64);
    EXPECT(thrown_by([&] { pipe.times(); }).status() == TT_ERR_STATE);
    double loss = pipe.step(world.rank() == 0 ? &x : nullptr, world.rank() == 1 ? &y : nullptr);
    double again = pipe.evaluate(&x, &y);
    EXPECT(loss == again && (loss > 0) == (world.rank() == 1));
    EXPECT(pipe.stage_count() == 2 && pipe.stage_parts(0) == 2 && pipe.stages());
    EXPECT(pipe.times().step_ms > 0);
    pipe.gather();
    EXPECT(thrown_by([&] { pipe.write_trace("/nowhere/at/all"); }).status() == TT_ERR_IO);
}

static void expressions() {
    tutti::tensor x = tutti::from_data(std::vector<float>{1, -2, 3, -4}, tutti::shape(2, 2));
    tutti::tensor w = tutti::full(tutti::shape(3, 2), -1), b = tutti::zeros(tutti::shape(3));
    w.requires_grad_();
    tutti::tensor h = tutti::relu(tutti::linear(x, w, b) + tutti::linear(x, w) * 2 - 0.5 * tutti::linear(x, w));
    tutti::tensor loss = tutti::mean(h * h) + tutti::sum(h) + tutti::mse_loss(h, tutti::zeros(tutti::shape(2, 3)));
    EXPECT(w.requires_grad() && loss.requires_grad() && !w.grad());
    tutti::backward_options again;
    again.retain_graph = true;
    tutti::backward(loss, again);
    float once = w.grad().data<float>()[0];
    loss.backward();
    EXPECT(once != 0 && w.grad().data<float>()[0] == 2 * once);
    w.zero_grad();
    {
        tutti::no_grad none;
        EXPECT(!tutti::sum(w).requires_grad());
    }
    EXPECT(x.dim() == 2 && x.size(-1) == 2 && x.numel() == 4 && x.dtype() == TT_F32 && x.shape().ndim == 2);
    EXPECT(tutti::equal(x.contiguous(), x) && x.contiguous().get() != x.get());
    EXPECT(tutti::equal(x.to(TT_F64).to(TT_F32), x) && tutti::equal(x.to(TT_F32), x.clone()));
    EXPECT(x.to(tt_device_get("reference")).numel() == 4 && x.flatten().dim() == 1 &&
           x.view(tutti::shape(4)).dim() == 1);
    tutti::tensor braces = tutti::zeros({3, 2});
    EXPECT(braces.dim() == 2 && braces.shape().dim[0] == 3 && braces.shape().dim[1] == 2);
    EXPECT(braces.view({-1}).dim() == 1 && tutti::empty({}).dim() == 0 && tutti::zeros(braces.shape()).dim() == 2);
    EXPECT(tutti::sum(braces, {{0, -1}}).dim() == 0 && tutti::sum(braces, {{1}, true}).dim() == 2);
    EXPECT(x.transpose(0, 1).reshape(tutti::shape(4)).data<float>()[1] == 3);
    EXPECT(tutti::equal(tutti::amax(x, {tutti::dims(0, 1), true}).flatten(), tutti::max(x).flatten()));
    EXPECT(tutti::equal(tutti::pow(tutti::abs(x), tutti::amin(x) * 0.0 + 2.0), tutti::pow(x, 2)));
    EXPECT(x.narrow(0, 1, 1).detach().numel() == 2 && x.argmax(1).data<std::int64_t>()[1] == 0);
    EXPECT(tutti::matmul(x, x).data<float>()[0] == -5 && tutti::log_softmax(x, 1).numel() == 4);
    tutti::tensor target = tutti::arange(2);
    EXPECT(std::fabs(tutti::cross_entropy(x, target).item() -
                     tutti::nll_loss(tutti::log_softmax(x, 1), target).item()) < 1e-6);
    EXPECT(tutti::scale(tutti::full(tutti::shape(), 3), 2).item() == 6 && tutti::rand(tutti::shape(2)).numel() == 2);
    tutti::manual_seed(3);
    tutti::tensor drawn = tutti::randn(tutti::shape(4)), copy = tutti::empty(tutti::shape(4));
    copy.copy_(drawn);
    EXPECT(tutti::equal(copy, drawn));
    tutti::set_num_threads(1);
    EXPECT(tutti::get_num_threads() == 1);
    float memory[] = {1, 2, 3, 4};
    tutti::tensor over = tutti::from_blob(memory, tutti::shape(2, 2));
    memory[3] = 5;
    EXPECT(over.data<float>()[3] == 5 && over.stride(0) == 2 && over.is_contiguous());
    EXPECT(!over.transpose(0, 1).is_contiguous() && over.describe() == "f32 (2, 2)");
    EXPECT(over.device() == tutti::device("cpu") && tutti::device_name(over.device()) == std::string("cpu"));
    EXPECT(tutti::empty_like(over).numel() == 4 && over.data_ptr() == memory);
    tutti::tensor image = tutti::zeros(tutti::shape(1, 2, 3, 3)).to(TT_CHANNELS_LAST);
    EXPECT(image.stride(1) == 1 && image.to(TT_CONTIGUOUS).stride(1) == 9);
    EXPECT(thrown_by([&] { tutti::from_blob(memory, tutti::shape(5)); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([] { tutti::device("abacus"); }).status() == TT_ERR_NOT_FOUND);
    EXPECT(tutti::device(TT_DEVICE_CPU, 0) == tutti::device("cpu") && tutti::device_count(TT_DEVICE_CPU) == 1);
    EXPECT(thrown_by([] { tutti::device(TT_DEVICE_CPU, 1); }).status() == TT_ERR_NOT_FOUND);
    tutti::synchronize(tutti::device("cpu"));
    EXPECT(!tutti::device_stream(tutti::device("cpu")));
    EXPECT(tutti::properties(tutti::device("cpu")).name == std::string("cpu"));
    EXPECT(thrown_by([] { tutti::set_device(tutti::device("cpu")); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([] { tutti::memory(tutti::device("cpu")); }).status() == TT_ERR_UNSUPPORTED);
    tutti::reset_peak_memory(tutti::device("cpu"));
    tutti::empty_cache(tutti::device("cpu"));

    tutti::error e = thrown_by([&] { tutti::matmul(x, drawn); });
    EXPECT(e.status() == TT_ERR_SHAPE && has(e.what(), "matmul"));
    EXPECT(thrown_by([&] { x.data<double>(); }).status() == TT_ERR_DTYPE);
    EXPECT(thrown_by([&] { tutti::from_data(std::vector<float>{1}, tutti::shape(2)); }).status() == TT_ERR_SHAPE);
    EXPECT(thrown_by([&] { drawn.item(); }).status() == TT_ERR_SHAPE);
}

static void random_numbers() {
    tutti::generator g(3), same(3);
    EXPECT(g.random() == same.random() && g.random64() == same.random64());
    g.seed(4), same.seed(4);
    tutti::tensor x = tutti::rand(tutti::shape(3), g), y = tutti::empty(tutti::shape(3));
    EXPECT(tutti::equal(x, y.uniform_(0, 1, same)));
    EXPECT(!tutti::equal(x, y.normal_(0, 1, same)));
    std::vector<std::int64_t> order = tutti::randperm(5, g);
    std::int64_t sum = 0;
    for (std::int64_t i : order)
        sum += i;
    EXPECT(order.size() == 5 && sum == 10);
    tutti::tensor drawn = tutti::randint(3, 4, tutti::shape(2), g);
    EXPECT(drawn.data<std::int64_t>()[1] == 3);
    tutti::manual_seed(1);
    std::uint32_t first = tutti::default_generator().random();
    tutti::manual_seed(1);
    EXPECT(tutti::default_generator().random() == first);
    EXPECT(thrown_by([] { tutti::randperm(-1); }).status() == TT_ERR_INVALID);
}

/* Gradients of some leaves now, of the others later; two graphs, the oldest ended first. */
static void backward_in_parts() {
    tutti::tensor x = tutti::full(tutti::shape(2), 3), w = tutti::full(tutti::shape(2), 5);
    x.requires_grad_(), w.requires_grad_();
    tutti::deferred_backward rest;
    tutti::backward_options first;
    first.inputs = {x}, first.deferred = &rest;
    tutti::sum(x * w * w).backward(first);
    EXPECT(x.grad().data<float>()[0] == 25 && !w.grad());
    tutti::backward_deferred(rest);
    EXPECT(w.grad().data<float>()[0] == 30);
    w.zero_grad();
    tutti::backward_options weighted;
    tutti::tensor ten = tutti::full(tutti::shape(2), 10);
    weighted.gradient = &ten;
    tutti::backward(w * w, weighted);
    EXPECT(w.grad().data<float>()[1] == 100);

    w.zero_grad();
    tutti::scope_object graphs[2];
    tutti::tensor y[2];
    for (int i = 0; i < 2; i++) {
        graphs[i].enter();
        y[i] = tutti::sum(w * w);
        graphs[i].leave();
    }
    for (int i = 0; i < 2; i++) {
        y[i].backward();
        graphs[i] = tutti::scope_object();
    }
    EXPECT(w.grad().data<float>()[0] == 20);
    EXPECT(thrown_by([&] { graphs[0].leave(); }).status() == TT_ERR_STATE);
    {
        tutti::scope_object entered;
        entered.enter();
    }
    tutti::tensor mine = tutti::ones(tutti::shape(1)); /* of no scope: freed here */
    tutti::no_grad none;
    tutti::enable_grad some;
    EXPECT(tutti::sum(w).requires_grad());
}

static void files() {
    std::string path = own_path(".idx.gz");
    tutti::scope scope;
    tutti::tensor pixels = tutti::full(tutti::shape(2, 3), 7, TT_U8);
    tutti::idx_write(pixels, path);
    EXPECT(tutti::equal(tutti::idx_read(path), pixels)); /* no scope's, and freed all the same */
    unlink(path.c_str());
    EXPECT(thrown_by([&] { tutti::idx_read(path); }).status() == TT_ERR_IO);

    path = own_path(".tensors");
    tutti::tensor half = tutti::full(tutti::shape(2), 1.5, TT_BF16), flags = tutti::ones(tutti::shape(3), TT_BOOL);
    tutti::safetensors_save(path, tutti::named_tensors{{"half", half}, {"flags", flags}}, {{"note", "first"}});
    tutti::safetensors file = tutti::safetensors_load(path);
    EXPECT(file.tensors()->count == 2 && tutti::equal(tutti::find(file.tensors(), "half"), half));
    EXPECT(file.metadata("note") == std::string("first") && !file.metadata("none"));
    EXPECT(!tutti::find(file.tensors(), "none") && tutti::safetensors_load(path, true).skipped().empty());
    unlink(path.c_str());
    EXPECT(thrown_by([] { tutti::safetensors_parse("1234567", 7, "torn"); }).status() == TT_ERR_FORMAT);

    tutti::module a = nn::linear(2, 2), b = nn::linear(2, 2);
    tutti::checkpoint_save(path, a, tutti::progress(3, 7));
    EXPECT(tutti::checkpoint_load(path, b).sampler_seed == 7);
    EXPECT(tutti::equal(tutti::find(a.parameters(), "weight"), tutti::find(b.parameters(), "weight")));
    unlink(path.c_str());
}

static void scopes() {
    tutti::tensor outside, moved;
    {
        tutti::scope scope;
        outside = tutti::ones(tutti::shape(5)) + tutti::ones(tutti::shape(5));
        outside.keep();
        tutti::scope inner;
        tutti::sum(outside).item();
    }
    moved = std::move(outside);
    EXPECT(!outside && tutti::sum(moved).item() == 10);
}

static void tensors_between_ranks(tutti::group &world) {
    int rank = world.rank(), other = 1 - rank;
    tutti::tensor x = tutti::full(tutti::shape(2), rank + 1), all = tutti::zeros(tutti::shape(4));
    tutti::tensor y = tutti::zeros(tutti::shape(2));
    tutti::all_gather(world, x, all);
    EXPECT(all.data<float>()[0] == 1 && all.data<float>()[3] == 2);
    tutti::gather(world, x, all, 0);
    tutti::scatter(world, all, y, 0);
    EXPECT(y.data<float>()[0] == float(rank + 1));
    tutti::reduce_scatter(world, all, y, TT_SUM);
    tutti::all_to_all(world, x, y);
    EXPECT(y.data<float>()[1 - rank] == float(other + 1));
    tutti::all_reduce(world, x, TT_SUM);
    EXPECT(x.data<float>()[1] == 3);
    tutti::reduce(world, x, TT_SUM, 0);
    tutti::broadcast(world, x, 0);
    EXPECT(x.data<float>()[1] == 6);
    if (rank == 0) {
        tutti::send(world, x, other);
        tutti::recv(world, y, other);
    } else {
        tutti::recv(world, y, other);
        tutti::send(world, x, other);
    }
    EXPECT(tutti::equal(x, y));
    tutti::tensor z = tutti::zeros(tutti::shape(2));
    tutti::work sent = tutti::isend(world, x, other), received = tutti::irecv(world, z, other);
    tutti::wait_all({sent, received});
    EXPECT(tutti::equal(x, z));
}

static void data() {
    tutti::dataset squares = tutti::dataset_from(
        6,
        [](std::int64_t i, void *x, void *y) {
            if (i == 5)
                throw std::runtime_error("example 5 is torn");
            *static_cast<float *>(x) = float(i);
            *static_cast<float *>(y) = float(i * i);
        },
        tt_spec(TT_F32, tutti::shape(1)), tt_spec(TT_F32, tutti::shape(1)));
    tutti::dataset good = tutti::subset(squares, 0, 5);
    EXPECT(squares.size() == 6 && good.size() == 5);
    tutti::loader loader(good, 2, tutti::in_order());
    for (int epoch = 0; epoch < 2; epoch++) {
        std::int64_t seen = 0;
        for (tutti::batch &batch : loader) {
            EXPECT(batch.indices[0] == seen && batch.y.data<float>()[0] == float(seen * seen));
            seen += batch.size;
        }
        EXPECT(seen == 5 && loader.batches() == 3);
    }
    for (tutti::batch &batch : loader) {
        tutti::tensor kept = std::move(batch.x.keep());
        EXPECT(kept.numel() == 2);
        break;
    }
    tutti::loader torn(squares, 6, tutti::in_order());
    std::runtime_error e = thrown_as(
        [&] {
            for (tutti::batch &batch : torn)
                (void)batch;
        },
        std::runtime_error(""));
    EXPECT(std::string(e.what()) == "example 5 is torn");
    EXPECT(tt_last_status() == TT_ERR_INVALID && has(tutti::last_error(), "example 5 is torn"));

    tutti::dataset pairs = tutti::tensor_dataset(tutti::zeros(tutti::shape(4, 2)), tutti::arange(4));
    tutti::sampler random = tutti::random_sampler(4), sequence = tutti::sequential_sampler(4);
    tutti::distributed_sampler_options ordered;
    ordered.no_shuffle = true;
    tutti::sampler half = tutti::distributed_sampler(4, 2, 1, ordered);
    half.set_epoch(1);
    EXPECT(half.size() == 2 && half.indices() == (std::vector<std::int64_t>{1, 3}) && random.size() == 4);
    tutti::loader pair_loader(pairs, 4, sequence), shuffled(pairs, 4, tutti::shuffled());
    EXPECT(pair_loader.next()->size == 4 && shuffled.next()->size == 4 && !shuffled.next());
    tutti::loader keeps(tutti::subset(tutti::digits(8, 0), 2, 6), 3, tutti::sequential_sampler(4));
    EXPECT(keeps.next()->size == 3 && keeps.next()->size == 1 && !keeps.next());
    EXPECT(thrown_by([] { tutti::mnist("/nowhere", true); }).status() == TT_ERR_IO);
    EXPECT(thrown_by([] { tutti::image_dataset("/nowhere", "/nowhere"); }).status() == TT_ERR_IO);
    tutti::error none = thrown_by([] { tutti::distributed_sampler(4, 0, 0); });
    EXPECT(none.status() == TT_ERR_INVALID);
}

/* Every scheduler, over an optimizer of two groups. */
static void schedules(tutti::optimizer &adam) {
    const double before = adam.option("lr");
    tutti::lr_scheduler half = tutti::lambda_lr(adam, [](std::int64_t epoch, std::int64_t) { return epoch ? 0.5 : 1; });
    half.step();
    EXPECT(half.last_lr() == before / 2 && half.last_epoch() == 1 && adam.option("lr") == before / 2);
    half.load_state_dict(half.state_dict());
    std::vector<tutti::lr_scheduler> parts;
    parts.push_back(std::move(half));
    parts.push_back(tutti::linear_lr(adam));
    tutti::lr_scheduler both = tutti::sequential_lr(std::move(parts), {2});
    both.step();
    EXPECT(both.last_lr() == before / 2);
    both.step();
    EXPECT(both.last_lr() == before * (1.0 / 3));
    parts.clear();
    parts.push_back(tutti::step_lr(adam, 1, 0.5));
    parts.push_back(tutti::multi_step_lr(adam, {1}, 0.5));
    parts.push_back(tutti::exponential_lr(adam, 0.5));
    tutti::lr_scheduler eighth = tutti::chained_scheduler(std::move(parts));
    double now = adam.option("lr");
    eighth.step();
    EXPECT(adam.option("lr") == now / 8);
    tutti::lr_scheduler constant = tutti::constant_lr(adam, 0.5), cosine = tutti::cosine_annealing_lr(adam, 5);
    tutti::lr_scheduler restarts = tutti::cosine_annealing_warm_restarts(adam, 5);
    tutti::lr_scheduler cycle = tutti::one_cycle_lr(adam, 1, 9);
    cosine.step(), restarts.step(), constant.step(), cycle.step();
    EXPECT(adam.option("lr") == cycle.last_lr());
    tutti::plateau_options quick;
    quick.factor = 0.5;
    tutti::lr_scheduler plateau = tutti::reduce_lr_on_plateau(adam, 0, quick);
    now = adam.option("lr");
    plateau.step(1.0), plateau.step(1.0);
    EXPECT(adam.option("lr") == now / 2);
    EXPECT(thrown_by([&] { plateau.step(); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::step_lr(adam, 0); }).status() == TT_ERR_INVALID);
}

/* Containers without a forward, layers, initial values. */
static void layers() {
    nn::module_list blocks{nn::linear(3, 3), nn::relu()};
    blocks.append(nn::embedding(5, 3));
    EXPECT(blocks.child_count() == 3 && blocks.parameters()->names[2] == std::string("2.weight"));
    EXPECT(thrown_by([&] { blocks(tutti::ones(tutti::shape(1, 3))); }).status() == TT_ERR_UNSUPPORTED);
    nn::module_list none;
    nn::module_dict heads{{"a", nn::linear(3, 2)}, {"b", nn::identity()}};
    tutti::tensor x = tutti::ones(tutti::shape(4, 3));
    EXPECT(none.child_count() == 0 && heads.child("a")(x).size(1) == 2 && heads.child("b")(x).size(0) == 4);
    tutti::embedding_module_options padded;
    padded.padding_idx = 1;
    tutti::module table = nn::embedding(4, 2, padded);
    EXPECT(tt_tensor_f32(table.parameters()->tensors[0])[2] == 0);
    padded.sparse = true;
    tutti::module sparse = nn::embedding(4, 2, padded);
    tutti::tensor rows = tutti::zeros(tutti::shape(3), TT_I64);
    tutti::backward(tutti::sum(sparse(rows)));
    EXPECT(tt_sparse_grad_values(sparse.parameters()->tensors[0]) && !tt_grad(sparse.parameters()->tensors[0]));
    tutti::tensor weight = tutti::ones(tutti::shape(4, 2));
    tutti::backward(tutti::sum(tutti::embedding(weight.requires_grad_(), rows, {}, true)));
    EXPECT(weight.sparse_grad_indices().numel() == 1 && weight.sparse_grad_values().size(1) == 2);
    tutti::conv1d_module_options wide;
    wide.padding = 1;
    EXPECT(nn::conv1d(3, 2, 3, wide)(tutti::ones(tutti::shape(1, 3, 5))).size(2) == 5);

    tutti::rnn_module_options deep;
    deep.num_layers = 2;
    tutti::module lstm = nn::lstm(3, 4, deep), gru = nn::gru(3, 4), rnn = nn::rnn(3, 4);
    tutti::tensor steps = tutti::ones(tutti::shape(5, 2, 3));
    EXPECT(lstm.forward_many({steps}, 3)[2].size(0) == 2 && gru(steps).size(2) == 4 && rnn(steps).size(0) == 5);
    tutti::tensor one = tutti::ones(tutti::shape(2, 3));
    EXPECT(nn::lstm_cell(3, 4).forward_many({one}, 2)[1].size(1) == 4 && nn::gru_cell(3, 4)(one).size(0) == 2);
    EXPECT(nn::rnn_cell(3, 4)(one).size(1) == 4);
    tutti::module attention = nn::multihead_attention(4, 2);
    tutti::module encoder = nn::transformer_encoder(nn::transformer_encoder_layer(4, 2, 8, 0), 2, true);
    tutti::tensor y = gru(steps), weights;
    tutti::multihead_attention_options seen;
    seen.is_causal = true, seen.weights = &weights;
    EXPECT(tutti::multihead_attention(attention, y, y, y, seen).size(2) == 4 && weights.size(1) == 5);
    tutti::transformer_encoder_options causal;
    causal.is_causal = true;
    EXPECT(tutti::transformer_encoder(encoder, y, causal).size(0) == 5 && encoder(y).size(1) == 2);

    tutti::tensor w = tutti::zeros(tutti::shape(4, 3)), image = tutti::zeros(tutti::shape(2, 2, 3));
    namespace init = tutti::init;
    init::kaiming_options back;
    EXPECT(init::calculate_gain(TT_NONLINEARITY_LINEAR) == 1);
    init::uniform_(w), init::normal_(w), init::trunc_normal_(w), init::xavier_uniform_(w), init::xavier_normal_(w);
    init::kaiming_uniform_(w), init::kaiming_normal_(w, back), init::orthogonal_(w);
    init::dirac_(image), init::zeros_(w), init::ones_(w), init::constant_(w, 2), init::eye_(w);
    EXPECT(w.data<float>()[0] == 1 && w.data<float>()[1] == 0);
    EXPECT(thrown_by([&] { init::dirac_(w); }).status() == TT_ERR_SHAPE);
}

/* Objects end in the reverse order of their beginning: the job last. */
static void recovering() {
    tutti::elastic job;
    tutti::group world = job.group();
    tutti::manual_seed(std::uint64_t(1 + world.rank()));
    tutti::module model = nn::sequential{nn::linear(4, 2)};
    tutti::module ddp = tutti::elastic_ddp(job, "model", model);
    EXPECT(thrown_by([&] {
               tutti::zero_optimizer(ddp, [](const tt_named_tensors *slices) { return tutti::sgd(slices, 0.1); });
           }).status() == TT_ERR_UNSUPPORTED);
    tutti::optimizer sgd = tutti::sgd(model.parameters(), 0.1);
    tutti::lr_scheduler scheduler = tutti::exponential_lr(sgd, 0.5);
    tutti::grad_scaler scaler;
    tutti::ema averages(model.parameters(), 0.5);
    tutti::generator random(7);
    tutti::dataset digits = tutti::digits(16, 0);
    tutti::loader loader(digits, 4, tutti::distributed_sampler(16, 2, world.rank()));
    int position = world.rank();
    std::string text = "rank " + std::to_string(world.rank());
    bool bound = false;
    job.add("position", position);
    tutti::elastic_part part;
    part.save = [&] { return text; };
    part.load = [&](const std::string &bytes) { text = bytes; };
    part.bind = [&](const tutti::group &g) { bound = bool(g); };
    job.add_part("text", part);
    tutti::elastic_add(job, "sgd", sgd);
    tutti::elastic_add(job, "scheduler", scheduler);
    tutti::elastic_add(job, "scaler", scaler);
    tutti::elastic_add(job, "averages", averages);
    tutti::elastic_add(job, "random", random);
    tutti::elastic_add(job, "loader", loader);
    tutti::module other = nn::linear(2, 2);
    tutti::elastic_add(job, "other", other);
    EXPECT(thrown_by([&] { job.commit(); }).status() == TT_ERR_STATE && job.commits() == -1);
    job.restore();
    EXPECT(job.commits() == 0 && !job.changed() && bound && position == 0 && text == "rank 0");
    {
        tutti::scope scope;
        tutti::sum(ddp.forward(tutti::ones(tutti::shape(1, 4)))).backward();
    }
    job.commit();
    EXPECT(job.should_stop() == 0 && job.commits() == 1 && job.step_seed(1) != job.step_seed(2));
}

static void synchronised_norms(tutti::group &world) {
    tutti::scope scope;
    tutti::manual_seed(1);
    tutti::module model = nn::sequential{nn::linear(4, 3), nn::batch_norm1d(3)};
    tutti::convert_sync_batchnorm(model, world);
    tutti::tensor y = model(tutti::randn(tutti::shape(1, 4))); /* one example, too few without the other rank's */
    tutti::module norm = nn::sync_batch_norm(world, 3);
    EXPECT(y.size(0) == 1 && norm(y).size(1) == 3);
}

static void replicas() {
    tutti::scope scope;
    tutti::manual_seed(1);
    tutti::module model = tutti::data_parallel(nn::sequential{nn::linear(4, 3)}, 2);
    EXPECT(std::string(model.parameters()->names[0]) == "module.0.weight" && tutti::data_parallel_replica() == 0);
    tutti::tensor x = tutti::ones(tutti::shape(5, 4));
    tutti::sum(model(x)).backward();
    EXPECT(model.parameters()->tensors[1] && tt_grad(model.parameters()->tensors[1]));
    std::vector<tutti::tensor> parts = tutti::parallel_scatter(x, 2);
    EXPECT(parts.size() == 2 && parts[0].size(0) == 3 && tutti::parallel_gather(parts).size(0) == 5);
    EXPECT(thrown_by([&] { tutti::parallel_scatter(x, 0); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::data_parallel(nn::relu(), -1); }).status() == TT_ERR_INVALID);
}

static void fully_sharded(tutti::group &world) {
    tutti::module model = nn::sequential{nn::linear(30, 20), nn::linear(20, 3)};
    tutti::module spread = tutti::fully_shard(model, world, {{"0"}});
    EXPECT(tutti::fully_shard_unit_count(spread) == 1);
    tutti::optimizer sgd =
        tutti::zero_optimizer(spread, [](const tt_named_tensors *slices) { return tutti::sgd(slices, 0.1); });
    {
        tutti::scope scope;
        tutti::sum(spread.forward(tutti::ones(tutti::shape(2, 30)))).backward();
    }
    sgd.step();
    EXPECT(thrown_by([&] { tutti::fully_shard_scatter(spread); }).status() == TT_ERR_STATE);
    tutti::fully_shard_gather(spread);
    EXPECT(tt_tensor_f32(model.parameters()->tensors[3])[0] != 0);
    tutti::fully_shard_scatter(spread);
    EXPECT(tt_tensor_data(model.parameters()->tensors[0]) == nullptr);
}

static void sharded(tutti::group &world) {
    tutti::module model = nn::linear(30, 20), ddp = tutti::ddp(model, world);
    tutti::optimizer adam = tutti::zero_optimizer(
        ddp, [](const tt_named_tensors *slices) { return tutti::adam(slices, 0.1); }, 2);
    {
        tutti::scope scope;
        tutti::sum(ddp.forward(tutti::ones(tutti::shape(2, 30)))).backward();
    }
    EXPECT(tutti::zero_clip_grad_norm_(adam, 1) > 1);
    adam.step();
    EXPECT(thrown_by([&] { adam.state_dict(); }).status() == TT_ERR_STATE);
    tutti::zero_consolidate(adam);
    EXPECT(tt_tensor_numel(tt_named_tensors_find(adam.state_dict(), "state.0.exp_avg")) == 600);
    EXPECT(thrown_by([&] { tutti::zero_load_sharded(adam, "x.pt"); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::zero_save_sharded(adam, "/nonexistent/x.safetensors"); }).status() == TT_ERR_IO);
    EXPECT(thrown_by([&] {
               tutti::module twin = nn::linear(3, 2), other = tutti::ddp(twin, world);
               tutti::zero_optimizer(other, [](const tt_named_tensors *) -> tutti::optimizer {
                   throw tutti::error(TT_ERR_STATE, "none today");
               });
           }).status() == TT_ERR_STATE);
}

static void training(tutti::group &world) {
    tutti::manual_seed(1);
    tutti::linear_options bare;
    bare.no_bias = true;
    tutti::module model = nn::sequential{nn::flatten(), nn::linear(784, 16, bare), nn::relu(), nn::linear(16, 10)};
    tutti::module ddp = tutti::ddp(model, world);
    EXPECT(ddp.parameters()->count == 3 && ddp.buffers()->count == 0);
    tutti::sgd_options heavy;
    heavy.momentum = 0.9;
    tutti::optimizer sgd = tutti::sgd(ddp.parameters(), 0.01, heavy);
    EXPECT(sgd.option("momentum") == 0.9);
    sgd.set_option("lr", 0.05);
    EXPECT(sgd.option("lr") == 0.05);
    tutti::dataset digits = tutti::digits(256, 0);
    digits.normalize(0.5, 0.5);
    tutti::loader loader(digits, 32, tutti::distributed_sampler(256, 2, world.rank()));
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 4; epoch++)
        for (tutti::batch &batch : loader) {
            tutti::scope scope;
            sgd.zero_grad();
            tutti::tensor loss = tutti::cross_entropy(ddp.forward(batch.x), batch.y);
            loss.backward();
            sgd.step();
            last = loss.item();
            first = first != 0 ? first : last;
        }
    EXPECT(last < first);
    tutti::shard_range range = tutti::ddp_shards(ddp);
    EXPECT(range.count == 1 && range.first == world.rank());
    tutti::ddp_set_step(ddp, 4);
    tutti::ddp_step_in_backward(ddp, sgd, true);
    EXPECT(thrown_by([&] { sgd.step(); }).status() == TT_ERR_STATE);
    tutti::ddp_end_step_in_backward(ddp);
    sgd.step();

    std::string path = own_path(".safetensors");
    tt_progress progress = TT_PROGRESS_INIT;
    progress.epoch = 4;
    tutti::checkpoint_save(path, model, sgd, progress);
    EXPECT(tutti::checkpoint_load(path, model, sgd).epoch == 4);
    unlink(path.c_str());
    ddp.load_state_dict(model.state_dict());
    sgd.load_state_dict(sgd.state_dict());
    model.eval(), model.train(), model.requires_grad_(true);

    tutti::module twin = nn::linear(2, 2);
    tutti::optimizer adam = tutti::adam(twin.parameters(), 1e-3), adamw = tutti::adamw(twin.parameters(), 1e-3, 0.01);
    tutti::rmsprop_options centered;
    centered.centered = true;
    EXPECT(tutti::rmsprop(twin.parameters(), 0.01, centered).option("centered") == 1);
    EXPECT(tutti::adagrad(twin.parameters(), 0.01).option("eps") == 1e-10);
    EXPECT(tutti::sparse_adam(twin.parameters(), 0.01).option("beta2") == 0.999);
    EXPECT(tutti::adadelta(twin.parameters(), 1).option("rho") == 0.9);
    EXPECT(tutti::lamb(twin.parameters(), 1, 0.5).option("weight_decay") == 0.5);
    EXPECT(adam.option("beta1") == 0.9 && adamw.option("weight_decay") == 0.01 && adam.option("eps") == 1e-8);
    tutti::tensor bias = tutti::zeros(tutti::shape(3));
    bias.requires_grad_();
    adam.add_param_group(tutti::named_tensors{{"bias", bias}}, {{"lr", 0.5}});
    EXPECT(adam.group_count() == 2 && adam.option("lr", 1) == 0.5 && adam.option("lr") == 1e-3);
    EXPECT(adam.options().size() > 3 && adam.options()[0] == "lr");
    EXPECT(thrown_by([&] { adam.add_param_group(model.parameters(), {{"speed", 1}}); }).status() == TT_ERR_NOT_FOUND);
    schedules(adam);
    tutti::ema average(twin.parameters(), 0.9);
    average.update(), average.store(), average.copy_to(), average.restore();
    average.load_state_dict(average.state_dict());
    EXPECT(thrown_by([&] { average.restore(); }).status() == TT_ERR_STATE);
    tutti::lr_scheduler constant = tutti::exponential_lr(adam, 1);
    tutti::checkpoint_parts parts{&adam, &constant, &average};
    const std::string whole = path + ".whole";
    tutti::checkpoint_save(whole, twin, parts, tutti::progress(3));
    EXPECT(tutti::checkpoint_load(whole, twin, parts).epoch == 3);
    unlink(whole.c_str());
    EXPECT(tutti::clip_grad_norm_(twin.parameters(), 1) == 0);
    tutti::clip_grad_value_(twin.parameters(), 1);
    twin.to(TT_F64);
    EXPECT(thrown_by([] { nn::sequential{{"named", nn::relu()}, nn::relu()}; }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { twin.add_module("a.b", nn::relu()); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([] { nn::linear(0, 1); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { tutti::sgd(model.parameters(), -1); }).status() == TT_ERR_INVALID);
}

/* On two ranks, which are a column of the mesh. */
static void meshes(tutti::group &world) {
    tutti::mesh mesh = tutti::init_device_mesh(world, {{"dp", 1}, {"tp"}});
    EXPECT(mesh.size() == 2 && mesh.size("tp") == 2 && mesh.local_rank("tp") == world.rank());
    EXPECT(mesh.dim_names() == std::vector<std::string>({"dp", "tp"}) && mesh.coordinate()[1] == world.rank());
    EXPECT(mesh.slice({"tp"}).local_rank() == world.rank() && mesh.slice({"tp"}).size() == 2);
    EXPECT(mesh.slice({"tp"}).group().world_size() == 2 && mesh.flatten("all").group("all").rank() == world.rank());
    EXPECT(thrown_by([&] { mesh.group("pp"); }).status() == TT_ERR_NOT_FOUND);
    EXPECT(thrown_by([&] { mesh.size("pp"); }).status() == TT_ERR_NOT_FOUND);
    tutti::mesh spare = tutti::init_device_mesh(world, {{"dp", 2}});
    tutti::barrier(world);
    spare.abort("enough");
    EXPECT(thrown_by([&] { tutti::barrier(spare.group()); }).status() == TT_ERR_ABORTED);
}

static void divided_models(tutti::group &world) {
    tutti::manual_seed(3);
    tutti::module divided =
        nn::sequential{nn::vocab_parallel_embedding(8, 4, world), nn::column_parallel_linear(4, 6, world), nn::relu(),
                       nn::row_parallel_linear(6, 4, world), nn::column_parallel_linear(4, 8, world)};
    tutti::manual_seed(3);
    tutti::module plain =
        nn::sequential{nn::embedding(8, 4), nn::linear(4, 6), nn::relu(), nn::linear(6, 4), nn::linear(4, 8)};
    tutti::scope scope;
    tutti::tensor words = tutti::from_data(std::vector<std::int64_t>{1, 6}, tutti::shape(2));
    tutti::tensor loss = tutti::tp_cross_entropy(divided(words), words, world);
    EXPECT(std::abs(loss.item() - tutti::cross_entropy(plain(words), words).item()) < 1e-5);
    tutti::tp_save_state_dict(divided, plain.state_dict());
    tutti::tp_load_state_dict(divided, plain.state_dict());
    tutti::tensor x = tutti::ones(tutti::shape(2, 4));
    EXPECT(tutti::tp_gather(tutti::tp_scatter(x, world), world).size(1) == 4);
    EXPECT(tutti::tp_reduce(tutti::tp_copy(x, world), world).data<float>()[0] == 2);
}

static void stages(tutti::group &world) {
    tutti::scope scope;
    tutti::tensor x = tutti::ones(tutti::shape(2));
    x.requires_grad_();
    if (world.rank() == 0) {
        tutti::send_activation(x, world, 1).backward();
        EXPECT(x.grad().data<float>()[1] == 1);
    } else {
        tutti::sum(tutti::recv_activation(world, 0)).backward();
    }
    EXPECT(thrown_by([&] { tutti::recv_activation(world, 2); }).status() == TT_ERR_INVALID);
}

/* Lines go to a function, also where it throws. */
static void models() {
    tutti::scope scope;
    tutti::module gpt = tutti::model_gpt(65, 16, 8, 1, 2), gpt2 = tutti::model_gpt2(65, 16, 8, 1, 2);
    EXPECT(tutti::model_mlp({8, 4, 2}).child_count() == 4);
    EXPECT(tutti::model_mnist_convnet(0, 0)(tutti::ones(tutti::shape(1, 1, 28, 28))).size(1) == 10);
    EXPECT(tutti::model_resnet18(3)(tutti::ones(tutti::shape(2, 3, 33, 33))).size(1) == 3);
    EXPECT(tutti::model_resnet34(3).child_count() == 7 && tutti::model_resnet50(3).child_count() == 7);
    tutti::model_gpt2_load_state_dict(gpt2, gpt2.state_dict());
    tutti::generate_options o;
    std::vector<std::int64_t> heard;
    o.on_token = [&](std::int64_t token) { return heard.push_back(token), heard.size() < 5; };
    EXPECT(tutti::model_generate(gpt, {1, 2}, 9, o) == heard && heard.size() == 5);
    o.on_token = [](std::int64_t) -> bool { throw std::runtime_error("enough"); };
    EXPECT(has(thrown_as([&] { tutti::model_generate(gpt2, {1, 2}, 9, o); }, std::runtime_error("")).what(), "enough"));
    EXPECT(thrown_by([] { tutti::model_gpt2_from_pretrained("/nowhere"); }).status() == TT_ERR_IO);
}

static void base() {
    static_assert(tutti::dtype_of<const std::int16_t>() == TT_I16);
    EXPECT(tutti::version() == std::string("0.1.0") && tutti::dtype_size(TT_BF16) == 2);
    EXPECT(tutti::dtype_name(TT_BF16) == std::string("bf16") && tutti::reduce_op_name(TT_AVG) == std::string("avg"));
    EXPECT(has(tutti::error(TT_ERR_TIMEOUT, "x").summary(), "deadline"));
    int lines = 0;
    tutti::set_log([&lines](tt_log_level, const char *) {
        lines++;
        throw std::runtime_error("no disk");
    });
    { tutti::group alone = tutti::init_process_group(alone_options()); }
    tutti::set_log(nullptr);
    EXPECT(lines > 0);
}

/* Alike on all ranks after an averaging. */
static void averaging(tutti::group &world) {
    tutti::manual_seed(std::uint64_t(world.rank()) + 1);
    tutti::module model = nn::linear(3, 2);
    tutti::optimizer sgd = tutti::sgd(model.parameters(), 0.1);
    tutti::model_averager averagers[] = {
        tutti::periodic_model_averager(world, model.parameters(), 2, 1),
        tutti::hierarchical_model_averager(world, model.parameters(), {{2, 1}, {4, 2}}),
        tutti::diloco(world, model.parameters(), 4, 0.7, 0.9, TT_BF16),
    };
    for (tutti::model_averager &averager : averagers) {
        for (int step = 0; step < 4; step++) {
            tutti::scope scope;
            sgd.zero_grad();
            tutti::sum(model(tutti::randn(tutti::shape(2, 3)))).backward();
            sgd.step();
            averager.step();
        }
        averager.average();
        EXPECT(averager.steps() == 4);
        averager.load_state_dict(averager.state_dict());
        std::vector<float> sum(1, tutti::sum(tutti::tensor::lent(model.parameters()->tensors[0])).item());
        float own = sum[0];
        tutti::all_reduce(world, sum, TT_MAX);
        EXPECT(sum[0] == own);
    }
    EXPECT(averagers[0].is_due() == false && averagers[2].is_due() == false);
    tutti::module ddp = tutti::ddp(model, world);
    tutti::post_local_sgd_options alone;
    alone.no_local_averaging = true;
    tutti::model_averager post_local = tutti::post_local_sgd(ddp, 1, 1, alone);
    EXPECT(!post_local.is_due());
    EXPECT(thrown_by([&] { tutti::post_local_sgd(model, 1, 1); }).status() == TT_ERR_INVALID);
}

int main() {
    return main_of([](tutti::group &world) {
        base();
        stores();
        own_stores();
        groups(world);
        buffers(world);
        uneven(world);
        symmetric_memory(world);
        reducing(world);
        piping(world);
        expressions();
        random_numbers();
        scopes();
        backward_in_parts();
        tensors_between_ranks(world);
        data();
        layers();
        synchronised_norms(world);
        replicas();
        training(world);
        meshes(world);
        divided_models(world);
        stages(world);
        averaging(world);
        fully_sharded(world);
        sharded(world);
        recovering();
        files();
        models();
        mismatch(world);
    });
}
