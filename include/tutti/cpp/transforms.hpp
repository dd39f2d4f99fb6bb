/* tutti/cpp/transforms.hpp: what is done to examples when they are read. */
/* Made by tools/wrappers.py of tutti/transforms.h and tools/wrappers/transforms.hpp.in. */
#ifndef TUTTI_CPP_TRANSFORMS_HPP
#define TUTTI_CPP_TRANSFORMS_HPP

#include <algorithm>
#include <tutti/cpp/data.hpp>
#include <tutti/transforms.h>

namespace tutti {

class transform {
  public:
    explicit transform(tt_transform *owned) : transform_(check(owned)) {}
    tt_transform *get() const noexcept { return transform_.get(); }
    tt_transform *release() noexcept { return transform_.release(); }

  private:
    detail::handle<tt_transform, tt_transform_free> transform_;
};

/* dataset_transform(train, compose(random_crop(32, 32, {.padding = 4}), random_horizontal_flip(0.5)), 7) */
inline dataset dataset_transform(const dataset &base, transform how, std::uint64_t seed = 0) {
    tt_dataset_transform_args a = TT_DATASET_TRANSFORM_ARGS_INIT;
    a.dataset = base.get(), a.transform = how.release(), a.seed = seed;
    return dataset(detail::call(tt_dataset_transform_with, a));
}

template <class... Transforms> transform compose(Transforms &&...parts) {
    tt_transform *all[] = {parts.release()...};
    tt_compose_args a = TT_COMPOSE_ARGS_INIT;
    a.transforms = all, a.count = std::int64_t(sizeof...(parts));
    return transform(detail::call(tt_compose_with, a));
}

inline transform to_tensor() { return transform(tt_to_tensor()); }
inline transform normalize_channels(const std::vector<double> &mean, const std::vector<double> &std) {
    if (mean.size() != std.size())
        throw error(TT_ERR_INVALID, "normalize_channels: expected as many means as stds");
    return transform(tt_normalize_channels(mean.data(), std.data(), std::int64_t(mean.size())));
}
inline transform center_crop(std::int64_t height, std::int64_t width) {
    return transform(tt_center_crop(height, width));
}
inline transform random_horizontal_flip(double p = 0.5) { return transform(tt_random_horizontal_flip(p)); }
inline transform random_vertical_flip(double p = 0.5) { return transform(tt_random_vertical_flip(p)); }
inline transform resize_image(std::int64_t height, std::int64_t width, bool nearest = false) {
    tt_resize_image_args a = TT_RESIZE_IMAGE_ARGS_INIT;
    a.height = height, a.width = width, a.nearest = nearest;
    return transform(detail::call(tt_resize_image_with, a));
}

struct random_crop_options {
    std::int64_t padding = 0;
    double fill = 0;
};

inline transform random_crop(std::int64_t height, std::int64_t width, const random_crop_options &o = {}) {
    tt_random_crop_args a = TT_RANDOM_CROP_ARGS_INIT;
    a.height = height, a.width = width, a.padding = o.padding, a.fill = o.fill;
    return transform(detail::call(tt_random_crop_with, a));
}

struct random_resized_crop_options {
    double scale[2] = {0.08, 1};
    double ratio[2] = {3.0 / 4, 4.0 / 3};
    bool nearest = false;
};
inline transform random_resized_crop(std::int64_t height, std::int64_t width,
                                     const random_resized_crop_options &o = {}) {
    tt_random_resized_crop_args a = TT_RANDOM_RESIZED_CROP_ARGS_INIT;
    a.height = height, a.width = width, a.nearest = o.nearest;
    std::copy(std::begin(o.scale), std::end(o.scale), a.scale);
    std::copy(std::begin(o.ratio), std::end(o.ratio), a.ratio);
    return transform(detail::call(tt_random_resized_crop_with, a));
}

struct random_rotation_options {
    bool bilinear = false;
    double fill = 0;
};

inline transform random_rotation(double min_degrees, double max_degrees, const random_rotation_options &o = {}) {
    tt_random_rotation_args a = TT_RANDOM_ROTATION_ARGS_INIT;
    a.min_degrees = min_degrees, a.max_degrees = max_degrees, a.bilinear = o.bilinear, a.fill = o.fill;
    return transform(detail::call(tt_random_rotation_with, a));
}

struct color_jitter_options {
    double brightness[2] = {1, 1};
    double contrast[2] = {1, 1};
    double saturation[2] = {1, 1};
    double hue[2] = {0, 0};
};
inline transform color_jitter(const color_jitter_options &o) {
    tt_color_jitter_args a = TT_COLOR_JITTER_ARGS_INIT;
    std::copy(std::begin(o.brightness), std::end(o.brightness), a.brightness);
    std::copy(std::begin(o.contrast), std::end(o.contrast), a.contrast);
    std::copy(std::begin(o.saturation), std::end(o.saturation), a.saturation);
    std::copy(std::begin(o.hue), std::end(o.hue), a.hue);
    return transform(detail::call(tt_color_jitter_with, a));
}

struct random_affine_options {
    double translate[2] = {0, 0};
    double scale[2] = {1, 1};
    double shear[4] = {0, 0, 0, 0};
    bool bilinear = false;
    double fill = 0;
};
inline transform random_affine(double min_degrees, double max_degrees, const random_affine_options &o = {}) {
    tt_random_affine_args a = TT_RANDOM_AFFINE_ARGS_INIT;
    a.min_degrees = min_degrees, a.max_degrees = max_degrees, a.bilinear = o.bilinear, a.fill = o.fill;
    std::copy(std::begin(o.translate), std::end(o.translate), a.translate);
    std::copy(std::begin(o.scale), std::end(o.scale), a.scale);
    std::copy(std::begin(o.shear), std::end(o.shear), a.shear);
    return transform(detail::call(tt_random_affine_with, a));
}

/* A transform by function, which stands outside and outlives the data set; `draws` for draws_uniform(). */
inline transform transform_from(tt_tensor_spec from, tt_transform_fn apply, void *user = nullptr,
                                tt_tensor_spec to = {}) {
    tt_transform_from_args a = TT_TRANSFORM_FROM_ARGS_INIT;
    a.from = from, a.apply = apply, a.user = user, a.to = to;
    return transform(detail::call(tt_transform_from_with, a));
}
inline double draws_uniform(tt_draws *draws, double low, double high) { return tt_draws_uniform(draws, low, high); }
inline std::int64_t draws_integer(tt_draws *draws, std::int64_t n) { return tt_draws_integer(draws, n); }

} // namespace tutti

#endif
