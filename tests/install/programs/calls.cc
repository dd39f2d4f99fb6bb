/* Calls between workers, and training over them, from C++: what travels, what functions are given and return, what they
 * throw, what futures and references become. On two ranks. */
#include "expect.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace nn = tutti::nn;
using tutti::tensor;

using bytes = std::vector<std::uint8_t>;
using texts = std::vector<std::string>;

/* ---- functions */

static std::atomic<int> counters;

struct counter {
    explicit counter(int start) : value(start) { counters++; }
    ~counter() { counters--; }
    int value;
};

static double half(double x) { return x / 2; }

static const tutti::rpc_function add("add", [](int a, int b) { return a + b; });
static const tutti::rpc_function same("same", [](tutti::rpc_value x) { return x; });
static const tutti::rpc_function joined("joined", [](const texts &all, const std::optional<std::string> &between) {
    std::string whole;
    for (const std::string &one : all)
        whole += (whole.empty() ? "" : between.value_or("")) + one;
    return whole;
});
static const tutti::rpc_function small("small", [](std::int8_t x) { return x; });
static const tutti::rpc_function fails("fails", [](int how) {
    if (how == 1)
        throw std::out_of_range("page 7");
    if (how == 2)
        throw tutti::error(TT_ERR_IO, "no page");
    if (how == 3)
        throw 7;
});
static const tutti::rpc_function next_fails("next_fails", [](tutti::rpc_call &call, int how) {
    call.worker().sync<void>(call.caller(), "fails", {how});
});
static const tutti::rpc_function caller("caller", [](tutti::rpc_call &call) {
    EXPECT(call.arg_count() == 0 && call.worker().id() != call.caller());
    return call.caller();
});
static const tutti::rpc_function later("later", [](tutti::rpc_call &call, int x) {
    return call.worker().async(call.caller(), "add", {x, 1000}).then([](int sum) { return sum + 1; });
});
static const tutti::rpc_function make_counter("make_counter",
                                              [](int start) { return std::make_unique<counter>(start); });
static const tutti::rpc_function count_up("count_up", [](counter &c, int by) { return c.value += by; });
static const tutti::rpc_function use("use", [](const tutti::rref &c) { return c.sync<int>("count_up", {10}); });
static const tutti::rpc_function as_in_c(
    "as_in_c", [](int x) { return x; }, "(int x) -> int");
static const tutti::rpc_function twice("twice", [](const tensor &x) { return x * 2; });
static const tutti::rpc_function layer("layer", [](int in, int out) {
    tutti::manual_seed(7);
    return nn::linear(in, out);
});
static const tutti::rpc_function halves("halves", [](const std::map<std::string, double> &all) {
    std::unordered_map<std::string, double> result;
    for (const auto &[name, x] : all)
        result[name] = half(x);
    return result;
});
static const tutti::rpc_function both("both",
                                      [](int a, const std::string &b) { return std::tuple<std::string, int>(b, a); });

/* ---- values */

template <class T> static bool comes_back(const T &x) { return tutti::rpc_value(tutti::rpc_arg(x)).as<T>() == x; }

static void values() {
    EXPECT(comes_back(true) && comes_back(-7) && comes_back(INT64_MIN) && comes_back(0.5f) && comes_back(-0.1));
    EXPECT(comes_back(std::string("a\0b", 3)) && comes_back(bytes{0, 255}) && comes_back(bytes{}));
    EXPECT(comes_back(std::vector<std::byte>{std::byte(3)}) && comes_back(std::vector<bool>{true, false}));
    EXPECT(comes_back(std::vector<texts>{{"a", "b"}, {}, {"c"}}) && comes_back(std::vector<double>{}));
    EXPECT(comes_back(std::map<std::string, std::vector<int>>{{"a", {1, 2}}, {"b", {}}}));
    EXPECT(comes_back(std::map<int, std::map<std::string, bool>>{{1, {{"yes", true}}}}));
    EXPECT(comes_back(std::optional<int>(3)) && comes_back(std::optional<texts>()));
    EXPECT(comes_back(std::tuple<int, std::string, std::vector<double>>(1, "two", {3})));
    EXPECT(tutti::rpc_value(nullptr).is_none() && tutti::rpc_value("text").as<std::string>() == "text");
    EXPECT(tutti::rpc_value(3).as<double>() == 3);

    tutti::rpc_value map(tutti::rpc_arg(std::map<std::string, int>{{"lr", 3}}));
    EXPECT(map.size() == 1 && map.find("lr")->integer == 3 && !map.find("no") && map.copy().find("lr"));
    tutti::rpc_value moved = std::move(map);
    EXPECT(map.is_none() && moved.kind() == TT_RPC_MAP && tutti::rpc_kind_name(moved.kind()) == std::string("map"));

    EXPECT(has(thrown_by([] { tutti::rpc_value("x").as<int>(); }).what(), "kind int, got text"));
    EXPECT(has(thrown_by([] { tutti::rpc_value(200).as<std::int8_t>(); }).what(), "8 bits with a sign, got 200"));
    EXPECT(has(thrown_by([] { tutti::rpc_value(-1).as<std::uint64_t>(); }).what(), "without a sign, got -1"));
    EXPECT(thrown_by([] { tutti::rpc_value x(UINT64_MAX); }).status() == TT_ERR_INVALID);
    EXPECT(has(thrown_by([] {
                   tutti::rpc_value(std::vector<int>{1, 2}).as<std::tuple<int>>();
               }).what(),
               "a list of 1 values, got one of 2"));
    EXPECT(thrown_by([] { tutti::rpc_value::object(std::make_unique<counter>(1)).copy(); }).status() == TT_ERR_INVALID);
    EXPECT(counters == 0);
}

/* ---- calls */

static void calls(const tutti::rpc &self, const std::string &other) {
    int id = self.find_worker(other);
    EXPECT(self.sync<int>(other, "add", {2, 3}) == 5 && self.sync<std::int64_t>(id, "add", {2, -3}) == -1);
    EXPECT(self.sync(other, "add", {1, 1}).as<double>() == 2 && self.sync<int>(self.name(), "add", {1, 2}) == 3);
    EXPECT(self.sync<std::string>(other, "joined", {texts{"a", "b"}, ", "}) == "a, b");
    EXPECT(self.sync<std::string>(other, "joined", {texts{"a", "b"}, nullptr}) == "ab");
    EXPECT(self.sync<double>(other, "half", {3}) == 1.5 && self.sync<int>(other, "as_in_c", {4}) == 4);
    EXPECT(self.sync<int>(other, "caller") == self.id() && self.sync<int>(other, "later", {5}) == 1006);
    auto [text, number] = self.sync<std::tuple<std::string, int>>(other, "both", {4, "four"});
    EXPECT(text == "four" && number == 4);
    std::map<std::string, double> ones = {{"a", 1}, {"b", 2}};
    EXPECT((self.sync<std::map<std::string, double>>(other, "halves", {ones}) ==
            std::map<std::string, double>{{"a", 0.5}, {"b", 1}}));
    bytes big(3 << 20, 5);
    big[70000] = 6;
    EXPECT(self.sync<bytes>(other, "same", {big}) == big);
    EXPECT(self.sync<std::vector<bytes>>(other, "same", {std::vector<bytes>{big, {1}}})[0] == big);

    tutti::error page = thrown_by([&] { self.sync<void>(other, "fails", {1}); });
    EXPECT(page.status() == TT_ERR_INVALID && has(page.what(), other + " (id "));
    EXPECT(has(page.what(), "fails(): an exception: page 7"));
    EXPECT(thrown_by([&] { self.sync<void>(other, "fails", {2}); }).status() == TT_ERR_IO);
    EXPECT(has(thrown_by([&] { self.sync<void>(other, "fails", {3}); }).what(), "an exception of an unknown type"));
    tutti::error nested = thrown_by([&] { self.sync<void>(other, "next_fails", {2}); });
    EXPECT(nested.status() == TT_ERR_IO && has(nested.what(), "next_fails(): " + self.name() + " (id "));
    EXPECT(has(thrown_by([&] { self.sync<int>(other, "add", {1}); }).what(), "add(int, int) -> int: expected 2"));
    EXPECT(has(thrown_by([&] {
                   self.sync<int>(other, "joined", {1, 2});
               }).what(),
               "joined(list, text?) -> text: expected argument 0 to be list"));
    EXPECT(has(thrown_by([&] { self.sync<int>(other, "small", {300}); }).what(), "8 bits with a sign, got 300"));
    EXPECT(has(thrown_by([&] { self.sync<std::string>(other, "add", {1, 2}); }).what(), "kind text, got int"));
    EXPECT(thrown_by([&] { self.sync("nobody", "add", {1, 2}); }).status() == TT_ERR_NOT_FOUND);
    EXPECT(self.worker_name(id) == other && self.workers() == (std::vector<int>{0, 1}));
}

/* ---- futures */

static void futures(const tutti::rpc &self, const std::string &other) {
    std::vector<tutti::future> all;
    std::atomic<int> called{0};
    for (int i = 0; i < 50; i++) {
        all.push_back(self.async(other, "add", {i, 1}));
        all.back().add_done_callback([&called, i](tutti::future &f) { called += f.value<int>() == i + 1; });
    }
    std::vector<int> sums = tutti::collect_all(all).value<std::vector<int>>();
    EXPECT(sums.size() == 50 && sums[49] == 50 && all[0].is_done());
    EXPECT(all[7].then([](int x) { return std::to_string(x); }).value<std::string>() == "8");
    for (const tutti::future &one : all)
        one.wait();
    EXPECT(called == 50);

    tutti::future whole = self.async(other, "same", {bytes(1 << 20, 9)}); /* which is gone by now */
    EXPECT(whole.value<bytes>() == bytes(1 << 20, 9) && whole.share().value().as<bytes>().size() == 1 << 20);
    EXPECT(thrown_by([&] { self.async(other, "fails", {2}).wait(); }).status() == TT_ERR_IO);
    tutti::future after = self.async(other, "fails", {2}).then([](tutti::rpc_value) { return 1; });
    EXPECT(has(thrown_by([&] { after.value<int>(); }).what(), "no page"));
    tutti::future thrown = self.async(other, "add", {1, 2}).then([](int x) {
        if (x == 3)
            throw std::out_of_range("page 3");
    });
    EXPECT(has(thrown_by([&] { thrown.wait(); }).what(), "page 3"));

    tutti::future own = tutti::future_new(), wrong = tutti::future_new();
    EXPECT(!own.is_done() && thrown_by([&] { own.wait(1); }).status() == TT_ERR_TIMEOUT);
    own.set_value(texts{"a"});
    EXPECT(own.value<texts>() == texts{"a"} && thrown_by([&] { own.set_value(1); }).status() == TT_ERR_STATE);
    wrong.set_error(TT_ERR_NAN, "no number");
    EXPECT(thrown_by([&] { wrong.wait(); }).status() == TT_ERR_NAN);
    EXPECT(has(thrown_by([&] { tutti::collect_all({own, wrong}).wait(); }).what(), "no number"));
}

/* ---- references */

static void references(const tutti::rpc &self, const std::string &other) {
    tutti::rref c = self.remote(other, "make_counter", {5});
    EXPECT(!c.is_owner() && c.owner() == self.find_worker(other) && c.sync<int>("count_up", {1}) == 6);
    EXPECT(c.async("count_up", {1}).value<int>() == 7 && c.remote("count_up", {1}).to_here<int>() == 8);
    EXPECT(self.sync<int>(other, "use", {c}) == 18 && self.sync<int>(self.name(), "use", {c}) == 28);
    EXPECT(thrown_by([&] { c.to_here(); }).status() == TT_ERR_INVALID);
    EXPECT(thrown_by([&] { c.local<counter>(); }).status() == TT_ERR_STATE);
    EXPECT(self.remote(other, "fails", {2}) &&
           thrown_by([&] { self.remote(other, "fails", {2}).to_here(); }).status() == TT_ERR_IO);
    EXPECT(self.remote(other, "same", {bytes(1 << 20, 9)}).to_here<bytes>() == bytes(1 << 20, 9));

    tutti::rref mine = tutti::rref_new(self, tutti::rpc_value::object(std::make_unique<counter>(3)));
    EXPECT(mine.is_owner() && mine.local<counter>().value == 3 && mine.sync<int>("count_up", {4}) == 7);
    EXPECT(has(thrown_by([&] { mine.local<std::thread>(); }).what(), "expected an object of the type"));
    tutti::rref back = self.sync<tutti::rref>(other, "same", {mine}), number = tutti::rref_new(self, 3);
    EXPECT(&back.local<counter>() == &mine.local<counter>() && number.local<int>() == 3 && number.to_here<int>() == 3);
    EXPECT(has(thrown_by([&] { number.sync<int>("count_up", {1}); }).what(), "kind object, got int"));
}

/* ---- training */

static void training(const tutti::rpc &self, const std::string &other) {
    tutti::scope scope;
    tensor x = tutti::ones(tutti::shape(4, 3)), y = tutti::zeros(tutti::shape(4, 2));
    EXPECT(tutti::equal(self.sync<tensor>(other, "twice", {x}), x * 2));
    std::vector<tensor> two;
    two.push_back(x * 3), two.push_back(y * 1);
    std::vector<tensor> same_two = self.async(other, "same", {two}).value<std::vector<tensor>>();
    EXPECT(tutti::equal(same_two[0], two[0]) && tutti::equal(same_two[1], two[1]));
    EXPECT(has(thrown_by([&] { self.sync<tensor>(other, "add", {1, 2}); }).what(), "kind tensor, got int"));

    tutti::manual_seed(7);
    tutti::module local = nn::linear(3, 2);
    tutti::optimizer local_sgd = tutti::sgd(local.parameters(), 0.1);
    tutti::remote_module remote(self, other, "layer", {3, 2});
    std::vector<tutti::rref> params = remote.parameters();
    tutti::dist_optimizer sgd(self, params, "sgd", {{"lr", 0.5}});
    sgd.set_option("lr", 0.1);
    tensor scale = tutti::ones(tutti::shape(1));
    scale.requires_grad_();
    for (int step = 0; step < 5; step++) {
        tutti::scope inner;
        local_sgd.zero_grad();
        tensor wanted = tutti::mse_loss(local(x), y);
        wanted.backward();
        local_sgd.step();
        tutti::dist_autograd context(self);
        EXPECT(context.id() && tutti::dist_autograd_current() == context.id());
        tensor loss = tutti::mse_loss(remote(x) * scale, y);
        EXPECT(loss.item() == wanted.item());
        context.backward({loss});
        EXPECT(context.grad(scale).numel() == 1 && !context.grad(x) && !scale.grad());
        sgd.step(context.id());
        if (step == 4)
            context.end();
    }
    EXPECT(tutti::dist_autograd_current() == 0);
    EXPECT(tutti::equal(params[0].to_here<tensor>(), tensor::lent(local.parameters()->tensors[0])));
    remote.eval();
    EXPECT(tutti::equal(remote.forward_async({x}, 1).value<std::vector<tensor>>()[0], local(x)));
    EXPECT(tutti::equal(remote.forward_many({x}, 1)[0], local(x)));
    EXPECT(!remote.reference().is_owner() &&
           thrown_by([&] { tutti::local_module(remote.reference()); }).status() == TT_ERR_STATE);
    EXPECT(thrown_by([&] { tutti::remote_module(self, other, "add", {1, 2}); }).status() == TT_ERR_INVALID);
    tutti::remote_module own(self, self.name(), "layer", {3, 2});
    EXPECT(tutti::local_module(own.reference()).parameters()->count == 2);
    EXPECT(own.parameters()[1].local<tensor>().get() == tutti::local_module(own.reference()).parameters()->tensors[1]);
    EXPECT(thrown_by([&] { tutti::dist_optimizer(self, params, "none"); }).status() == TT_ERR_NOT_FOUND);
}

/* ---- workers */

static void registering() {
    tutti::rpc_register<half>("half");
    auto pair = [](int x) { return x; };
    tutti::rpc_register("once", pair);
    EXPECT(has(thrown_by([&] { tutti::rpc_register("again", pair); }).what(), "is registered already, as once"));
    EXPECT(thrown_by([] { tutti::rpc_register("no name", [] {}); }).status() == TT_ERR_INVALID);
}

static void alone() {
    tutti::store memory = tutti::hash_store();
    tutti::rpc_init_options o;
    o.id = 3, o.prefix = "calls";
    tutti::rpc self = tutti::rpc_init("alone", memory, o), moved = std::move(self);
    EXPECT(!self && moved.id() == 3 && moved.name() == "alone" && moved.sync<int>(3, "add", {1, 2}) == 3);
} /* without shutdown() */

static void workers(tutti::group &world) {
    std::string name = "worker" + std::to_string(world.rank()), other = "worker" + std::to_string(1 - world.rank());
    tutti::rpc_init_options o;
    o.join_timeout_ms = 60000, o.timeout_ms = 60000;
    tutti::rpc self = tutti::rpc_init(name, world, o);
    EXPECT(self.name() == name && self.id() == world.rank() && self.counts().calls == 0);
    EXPECT(thrown_by([] { tutti::rpc_register("late", [] {}); }).status() == TT_ERR_STATE);
    calls(self, other);
    futures(self, other);
    references(self, other);
    training(self, other);
    self.shutdown(false, 60000);
    EXPECT(!self && counters == 0);
}

int main() {
    return main_of([](tutti::group &world) {
        values();
        registering();
        workers(world);
        alone();
    });
}
