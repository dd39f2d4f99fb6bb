// Timeouts, which a script may give any length, as times of the steady clock.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti_torch {

// When so long a time from now is over. What is longer than a year never is.
inline std::chrono::steady_clock::time_point deadline_in(std::chrono::milliseconds time) {
    using namespace std::chrono;
    constexpr hours YEAR{24 * 365};
    return time < YEAR ? steady_clock::now() + std::max(time, milliseconds(0)) : steady_clock::time_point::max();
}

// What is left until then, of which at most `most`.
inline std::chrono::milliseconds left_until(std::chrono::steady_clock::time_point deadline,
                                            std::chrono::milliseconds most) {
    using namespace std::chrono;
    const auto now = steady_clock::now();
    return deadline <= now ? milliseconds(0) : std::min(ceil<milliseconds>(deadline - now), most);
}

} // namespace tutti_torch
