// A thread that calls functions at given times: deadlines of requests, which go on after them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace tutti_torch {

class Deadlines : public std::enable_shared_from_this<Deadlines> {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Entry {
        Time time;
        uint64_t number = 0; // 0: none
        bool operator<(const Entry &other) const {
            return time < other.time || (time == other.time && number < other.number);
        }
    };

    // Call `f`, which must neither throw nor wait, at that time. The first call begins the thread. Throws.
    Entry call_at(Time time, std::function<void()> f);

    // Not any more, if it has not been called.
    void drop(const Entry &entry);

    // Drop what has not been called, wait for what is being called, and let the thread end.
    void stop();

  private:
    void serve();

    std::mutex lock_; // of all that follows
    std::condition_variable changed_, called_;
    std::map<Entry, std::function<void()>> waiting_;
    uint64_t last_number_ = 0;
    bool started_ = false, calling_ = false, stopped_ = false;
};

} // namespace tutti_torch
