// gloo's processes meet through Tutti's store.
#include "plugin.h"

#include <gloo/rendezvous/store.h>

#include <stdexcept>

namespace tutti {
namespace {

class Store : public gloo::rendezvous::Store {
  public:
    explicit Store(tt_store *store) : store_(store) {}

    void set(const std::string &key, const std::vector<char> &data) override {
        if (store_) // without a store no other rank reads the value
            check(host->store_set(store_, key.c_str(), data.data(), data.size()));
    }

    std::vector<char> get(const std::string &key) override {
        tt_store_value value;
        check(host->store_get(store_, key.c_str(), &value));
        auto text = static_cast<const char *>(value.data);
        std::vector<char> data(text, text + value.size);
        host->store_value_free(&value);
        return data;
    }

    // 0: the store's own timeout, which is that of joining.
    void wait(const std::vector<std::string> &keys) override { wait(keys, std::chrono::milliseconds(0)); }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override {
        std::vector<const char *> names;
        for (auto &key : keys)
            names.push_back(key.c_str());
        check(host->store_wait(store_, names.data(), names.size(), timeout.count()));
    }

  private:
    static void check(tt_status status) {
        if (status)
            throw std::runtime_error(host->last_error());
    }

    tt_store *store_;
};

} // namespace

std::unique_ptr<gloo::rendezvous::Store> make_store(tt_store *store) { return std::make_unique<Store>(store); }

} // namespace tutti
