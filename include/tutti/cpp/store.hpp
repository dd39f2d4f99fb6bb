/* tutti/cpp/store.hpp: the key-value store that ranks meet through. */
#ifndef TUTTI_CPP_STORE_HPP
#define TUTTI_CPP_STORE_HPP

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include <tutti/cpp/base.hpp>
#include <tutti/store.h>

namespace tutti {

/* ---- stores */

struct tcp_store_options {
    bool is_server = false;
    int world_size = 0;
    bool no_wait_for_workers = false;
    std::int64_t timeout_ms = 0;
    tt_store_dialect dialect = TT_STORE_TORCH_2;
    const char *secret = nullptr;
    bool torch_server = false;
    tt_store_auth auth = TT_STORE_AUTH_LOCAL;
};

struct file_store_options {
    int world_size = 0;
    bool fresh = false;
    std::int64_t timeout_ms = 0;
};

struct etcd_store_options {
    const char *prefix = nullptr;
    std::int64_t timeout_ms = 0;
    const char *user = nullptr, *password = nullptr, *token = nullptr;
    const char *ca_file = nullptr, *cert_file = nullptr, *key_file = nullptr;
};

struct store_server_options {
    tt_store_auth auth = TT_STORE_AUTH_LOCAL;
    const char *secret = nullptr;
    std::int64_t proof_timeout_ms = 0;
};

namespace detail {

/* Values that C gave, freed in the end. */
struct store_values {
    explicit store_values(std::size_t n = 1) : all(n, tt_store_value{nullptr, 0}) {}
    ~store_values() {
        for (tt_store_value &value : all)
            tt_store_value_free(&value);
    }
    store_values(const store_values &) = delete;
    store_values &operator=(const store_values &) = delete;
    std::string text(std::size_t i = 0) const {
        return std::string(static_cast<const char *>(all[i].data), all[i].size);
    }
    std::vector<tt_store_value> all;
};

} // namespace detail

class store {
  public:
    explicit store(tt_store *owned) : store_(check(owned)) {}
    tt_store *get() const noexcept { return store_.get(); }
    int port() const { return tt_store_port(get()); }
    std::int64_t timeout_ms() const { return tt_store_timeout_ms(get()); }
    void set_timeout_ms(std::int64_t ms) { tt_store_set_timeout_ms(get(), ms); }

    void set(const std::string &key, const std::string &value) {
        check(tt_store_set(get(), key.c_str(), value.data(), value.size()));
    }
    std::string get(const std::string &key) {
        detail::store_values value;
        check(tt_store_get(get(), key.c_str(), value.all.data()));
        return value.text();
    }
    std::int64_t add(const std::string &key, std::int64_t delta) {
        std::int64_t result = 0;
        check(tt_store_add(get(), key.c_str(), delta, &result));
        return result;
    }
    std::string compare_set(const std::string &key, const std::string &expected, const std::string &desired) {
        detail::store_values value;
        check(tt_store_compare_set(get(), key.c_str(), expected.data(), expected.size(), desired.data(), desired.size(),
                                   value.all.data()));
        return value.text();
    }
    void append(const std::string &key, const std::string &value) {
        check(tt_store_append(get(), key.c_str(), value.data(), value.size()));
    }
    void wait(const std::vector<std::string> &keys, std::int64_t timeout_ms = 0) {
        std::vector<const char *> texts = detail::c_strings(keys);
        check(tt_store_wait(get(), texts.data(), std::int64_t(texts.size()), timeout_ms));
    }
    bool check_keys(const std::vector<std::string> &keys) {
        std::vector<const char *> texts = detail::c_strings(keys);
        bool all = false;
        check(tt_store_check(get(), texts.data(), std::int64_t(texts.size()), &all));
        return all;
    }
    bool delete_key(const std::string &key) {
        bool deleted = false;
        check(tt_store_delete_key(get(), key.c_str(), &deleted));
        return deleted;
    }
    std::int64_t num_keys() {
        std::int64_t count = 0;
        check(tt_store_num_keys(get(), &count));
        return count;
    }
    std::vector<std::string> multi_get(const std::vector<std::string> &keys) {
        std::vector<const char *> texts = detail::c_strings(keys);
        detail::store_values values(keys.size());
        check(tt_store_multi_get(get(), texts.data(), std::int64_t(texts.size()), values.all.data()));
        std::vector<std::string> result;
        for (std::size_t i = 0; i < keys.size(); i++)
            result.push_back(values.text(i));
        return result;
    }
    void multi_set(const std::vector<std::pair<std::string, std::string>> &pairs) {
        std::vector<const char *> keys;
        std::vector<const void *> values;
        std::vector<std::size_t> sizes;
        for (const auto &[key, value] : pairs)
            keys.push_back(key.c_str()), values.push_back(value.data()), sizes.push_back(value.size());
        check(tt_store_multi_set(get(), keys.data(), values.data(), sizes.data(), std::int64_t(pairs.size())));
    }
    std::vector<std::string> list_keys() {
        char **keys = nullptr;
        std::int64_t n = 0;
        check(tt_store_list_keys(get(), &keys, &n));
        detail::handle<char *, std::free> block(keys);
        return std::vector<std::string>(keys, keys + n);
    }
    void barrier(const std::string &key, std::int64_t world_size, std::int64_t timeout_ms = 0) {
        check(tt_store_barrier(get(), key.c_str(), world_size, timeout_ms));
    }

  private:
    detail::handle<tt_store, tt_store_free> store_;
};

inline store tcp_store(const std::string &host, int port, const tcp_store_options &o = {}) {
    tt_store *made = nullptr;
    tt_tcp_store_args a = TT_TCP_STORE_ARGS_INIT;
    a.out = &made, a.host = host.c_str(), a.port = port, a.is_server = o.is_server, a.world_size = o.world_size;
    a.no_wait_for_workers = o.no_wait_for_workers, a.timeout_ms = o.timeout_ms, a.dialect = o.dialect;
    a.secret = o.secret, a.torch_server = o.torch_server, a.auth = o.auth;
    check(detail::call(tt_tcp_store_with, a));
    return store(made);
}

inline store file_store(const std::string &path, const file_store_options &o = {}) {
    tt_store *made = nullptr;
    tt_file_store_args a = TT_FILE_STORE_ARGS_INIT;
    a.out = &made, a.path = path.c_str(), a.world_size = o.world_size, a.fresh = o.fresh, a.timeout_ms = o.timeout_ms;
    check(detail::call(tt_file_store_with, a));
    return store(made);
}

inline store etcd_store(const std::string &endpoints, const etcd_store_options &o = {}) {
    tt_store *made = nullptr;
    tt_etcd_store_args a = TT_ETCD_STORE_ARGS_INIT;
    a.out = &made, a.endpoints = endpoints.c_str(), a.prefix = o.prefix, a.timeout_ms = o.timeout_ms;
    a.user = o.user, a.password = o.password, a.token = o.token;
    a.ca_file = o.ca_file, a.cert_file = o.cert_file, a.key_file = o.key_file;
    check(detail::call(tt_etcd_store_with, a));
    return store(made);
}

inline store hash_store(std::int64_t timeout_ms = 0) {
    tt_store *made = nullptr;
    check(tt_hash_store(&made, timeout_ms));
    return store(made);
}

/* What a store of your own does; each throws what goes wrong, a tutti::error with its status. get, wait: at most
 * timeout_ms. Those up to `check` are required; without another one its call is TT_ERR_UNSUPPORTED. */
struct store_functions {
    std::string name = "a store"; /* for errors */
    std::function<void(const std::string &key, const std::string &value)> set;
    std::function<std::string(const std::string &key, std::int64_t timeout_ms)> get;
    std::function<std::int64_t(const std::string &key, std::int64_t delta)> add;
    std::function<void(const std::vector<std::string> &keys, std::int64_t timeout_ms)> wait;
    std::function<bool(const std::vector<std::string> &keys)> check;
    std::function<std::string(const std::string &key, const std::string &expected, const std::string &desired)>
        compare_set = {};
    std::function<bool(const std::string &key)> delete_key = {};
    std::function<std::int64_t()> num_keys = {};
    std::function<void(const std::string &key, const std::string &value)> append = {};
};

namespace detail {

inline store_functions &functions_of(void *user) { return *static_cast<store_functions *>(user); }

inline std::string text_of(const void *data, std::size_t size) {
    return size ? std::string(static_cast<const char *>(data), size) : std::string();
}

/* A copy that C frees, with a NUL behind it. */
inline void give_value(tt_store_value *to, const std::string &text) {
    to->data = std::malloc(text.size() + 1);
    if (!to->data)
        throw std::bad_alloc();
    std::memcpy(to->data, text.c_str(), text.size() + 1);
    to->size = text.size();
}

inline void add_required(tt_store_class &c, const store_functions &f) {
    if (f.set)
        c.set = [](void *u, const char *key, const void *value, std::size_t size) {
            return guarded([&] { functions_of(u).set(key, text_of(value, size)); });
        };
    if (f.get)
        c.get = [](void *u, const char *key, std::int64_t timeout_ms, tt_store_value *value) {
            return guarded([&] { give_value(value, functions_of(u).get(key, timeout_ms)); });
        };
    if (f.add)
        c.add = [](void *u, const char *key, std::int64_t delta, std::int64_t *result) {
            return guarded([&] { *result = functions_of(u).add(key, delta); });
        };
    if (f.wait)
        c.wait = [](void *u, const char *const *keys, std::int64_t n, std::int64_t timeout_ms) {
            return guarded([&] { functions_of(u).wait({keys, keys + n}, timeout_ms); });
        };
    if (f.check)
        c.check = [](void *u, const char *const *keys, std::int64_t n, bool *all) {
            return guarded([&] { *all = functions_of(u).check({keys, keys + n}); });
        };
}

inline void add_optional(tt_store_class &c, const store_functions &f) {
    if (f.compare_set)
        c.compare_set = [](void *u, const char *key, const void *expected, std::size_t expected_size,
                           const void *desired, std::size_t desired_size, tt_store_value *value) {
            return guarded([&] {
                give_value(value, functions_of(u).compare_set(key, text_of(expected, expected_size),
                                                              text_of(desired, desired_size)));
            });
        };
    if (f.delete_key)
        c.delete_key = [](void *u, const char *key, bool *deleted) {
            return guarded([&] { *deleted = functions_of(u).delete_key(key); });
        };
    if (f.num_keys)
        c.num_keys = [](void *u, std::int64_t *count) { return guarded([&] { *count = functions_of(u).num_keys(); }); };
    if (f.append)
        c.append = [](void *u, const char *key, const void *value, std::size_t size) {
            return guarded([&] { functions_of(u).append(key, text_of(value, size)); });
        };
}

} // namespace detail

/* A store of your own, which owns what its functions capture. */
inline store custom_store(store_functions functions, std::int64_t timeout_ms = 0) {
    auto owned = std::make_unique<store_functions>(std::move(functions));
    tt_store_class cls = {};
    cls.name = owned->name.c_str();
    cls.destroy = detail::destroy<store_functions>;
    detail::add_required(cls, *owned);
    detail::add_optional(cls, *owned);
    tt_store *made = nullptr;
    tt_store_new_args a = TT_STORE_NEW_ARGS_INIT;
    a.out = &made, a.cls = &cls, a.cls_size = sizeof cls, a.timeout_ms = timeout_ms, a.user = owned.release();
    check(detail::call(tt_store_new_with, a));
    return store(made);
}

/* A view of `base`, which must outlive it. */
inline store prefix_store(const std::string &prefix, store &base) {
    tt_store *made = nullptr;
    check(tt_prefix_store(&made, prefix.c_str(), base.get()));
    return store(made);
}
store prefix_store(const std::string &prefix, store &&base) = delete;

/* Serves a store from a thread of this process, until it is destroyed. */
class store_server {
  public:
    store_server(const std::string &host, int port, const store_server_options &o = {}) {
        tt_store_server *made = nullptr;
        tt_store_server_new_args a = TT_STORE_SERVER_NEW_ARGS_INIT;
        a.out = &made, a.host = host.c_str(), a.port = port, a.auth = o.auth, a.secret = o.secret;
        a.proof_timeout_ms = o.proof_timeout_ms;
        check(detail::call(tt_store_server_new_with, a));
        server_.reset(made);
    }
    tt_store_server *get() const noexcept { return server_.get(); }
    int port() const { return tt_store_server_port(get()); }

  private:
    detail::handle<tt_store_server, tt_store_server_free> server_;
};

} // namespace tutti

#endif
