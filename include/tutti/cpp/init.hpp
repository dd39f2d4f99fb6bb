/* tutti/cpp/init.hpp: initial values of parameters. What PyTorch gives a default has it here, too. */
/* Made by tools/wrappers.py of tutti/init.h and tools/wrappers/init.hpp.in. */
#ifndef TUTTI_CPP_INIT_HPP
#define TUTTI_CPP_INIT_HPP

#include <tutti/cpp/tensor.hpp>
#include <tutti/init.h>

namespace tutti {

namespace init {

inline double calculate_gain(tt_nonlinearity nonlinearity, double negative_slope = 0.01) {
    double gain = tt_init_calculate_gain(nonlinearity, negative_slope);
    if (!(gain > 0))
        check(tt_last_status());
    return gain;
}

inline void constant_(const tensor &x, double value) { check(tt_init_constant_(x.get(), value)); }
inline void zeros_(const tensor &x) { check(tt_init_zeros_(x.get())); }
inline void ones_(const tensor &x) { check(tt_init_ones_(x.get())); }
inline void eye_(const tensor &x) { check(tt_init_eye_(x.get())); }
inline void dirac_(const tensor &x, std::int64_t groups = 1) {
    tt_init_dirac_args a = TT_INIT_DIRAC_ARGS_INIT;
    a.x = x.get(), a.groups = groups;
    check(detail::call(tt_init_dirac_with, a));
}
inline void uniform_(const tensor &x, double low = 0, double high = 1, tt_generator *generator = nullptr) {
    tt_init_uniform_args a = TT_INIT_UNIFORM_ARGS_INIT;
    a.x = x.get(), a.a = low, a.b = high, a.generator = generator;
    check(detail::call(tt_init_uniform_with, a));
}
inline void normal_(const tensor &x, double mean = 0, double std = 1, tt_generator *generator = nullptr) {
    tt_init_normal_args a = TT_INIT_NORMAL_ARGS_INIT;
    a.x = x.get(), a.mean = mean, a.std = std, a.generator = generator;
    check(detail::call(tt_init_normal_with, a));
}
inline void trunc_normal_(const tensor &x, double mean = 0, double std = 1, double low = -2, double high = 2,
                          tt_generator *generator = nullptr) {
    tt_init_trunc_normal_args a = TT_INIT_TRUNC_NORMAL_ARGS_INIT;
    a.x = x.get(), a.mean = mean, a.std = std, a.a = low, a.b = high, a.generator = generator;
    check(detail::call(tt_init_trunc_normal_with, a));
}
inline void xavier_uniform_(const tensor &x, double gain = 1, tt_generator *generator = nullptr) {
    tt_init_xavier_uniform_args a = TT_INIT_XAVIER_UNIFORM_ARGS_INIT;
    a.x = x.get(), a.gain = gain, a.generator = generator;
    check(detail::call(tt_init_xavier_uniform_with, a));
}
inline void xavier_normal_(const tensor &x, double gain = 1, tt_generator *generator = nullptr) {
    tt_init_xavier_uniform_args a = TT_INIT_XAVIER_UNIFORM_ARGS_INIT;
    a.x = x.get(), a.gain = gain, a.generator = generator;
    check(detail::call(tt_init_xavier_normal_with, a));
}

struct kaiming_options {
    double a = 0;
    tt_fan_mode mode = TT_FAN_IN;
    tt_nonlinearity nonlinearity = TT_NONLINEARITY_LEAKY_RELU;
    tt_generator *generator = nullptr;
};

inline void kaiming_uniform_(const tensor &x, const kaiming_options &o = {}) {
    tt_init_kaiming_uniform_args a = TT_INIT_KAIMING_UNIFORM_ARGS_INIT;
    a.x = x.get(), a.a = o.a, a.mode = o.mode, a.nonlinearity = o.nonlinearity, a.generator = o.generator;
    check(detail::call(tt_init_kaiming_uniform_with, a));
}
inline void kaiming_normal_(const tensor &x, const kaiming_options &o = {}) {
    tt_init_kaiming_uniform_args a = TT_INIT_KAIMING_UNIFORM_ARGS_INIT;
    a.x = x.get(), a.a = o.a, a.mode = o.mode, a.nonlinearity = o.nonlinearity, a.generator = o.generator;
    check(detail::call(tt_init_kaiming_normal_with, a));
}
inline void orthogonal_(const tensor &x, double gain = 1, tt_generator *generator = nullptr) {
    tt_init_orthogonal_args a = TT_INIT_ORTHOGONAL_ARGS_INIT;
    a.x = x.get(), a.gain = gain, a.generator = generator;
    check(detail::call(tt_init_orthogonal_with, a));
}

} // namespace init

} // namespace tutti

#endif
