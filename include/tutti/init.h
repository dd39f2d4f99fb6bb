/* tutti/init.h: initial values of parameters. PyTorch: torch.nn.init.
 *
 * Each fills x, floats of any layout on any device, in place, without a record: parameters may be filled. Functions
 * that draw take f32 or f64, and give the bits of PyTorch 1.13 from the same seed (tt_manual_seed()), except
 * tt_init_orthogonal_(), whose numbers are PyTorch's to 1e-6. If x has no elements, nothing changes.
 * The fans of a weight (K,C,...): fan_in is how many inputs an output sums, the product of C and what follows; fan_out
 * the same with K.
 * Errors: x NULL: as tt_item(); TT_ERR_DTYPE; TT_ERR_SHAPE x has too few dimensions; TT_ERR_INVALID an option,
 * or x repeats elements in memory; TT_ERR_MEMORY. */
#ifndef TUTTI_INIT_H
#define TUTTI_INIT_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

/* ---- by values ---- */

/* All of x is `value` / 0 / 1. */
TT_API TT_NODISCARD tt_status tt_init_constant_(tt_tensor *x, double value);
TT_API TT_NODISCARD tt_status tt_init_zeros_(tt_tensor *x);
TT_API TT_NODISCARD tt_status tt_init_ones_(tt_tensor *x);

/* x (R,C) has ones in its diagonal, else zeros: a linear layer gives back what it gets. */
TT_API TT_NODISCARD tt_status tt_init_eye_(tt_tensor *x);

typedef struct tt_init_dirac_args {
    tt_tensor *x; /* required: (K,C,...) of 3 to 5 dimensions */
    TT_OPTIONS;
    int64_t groups; /* divides K; 0, the default, is 1 */
    char tt_end;    /* not an option: see base.h */
} tt_init_dirac_args;

/* In each group, output number i gets a one in the middle of the kernel of input i, else zeros: a convolution gives
 * back as many of its channels as fit.  tt_init_dirac_(weight, .groups = 3) */
TT_API TT_NODISCARD tt_status tt_init_dirac_with(const tt_init_dirac_args *args, size_t size);

/* ---- drawn from a distribution ---- */

typedef struct tt_init_uniform_args {
    tt_tensor *x; /* required */
    double a, b;  /* required: low and high */
    TT_OPTIONS;
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_init_uniform_args;

/* From U(a, b), as tt_uniform_().  tt_init_uniform_(weight, -0.1, 0.1) */
TT_API TT_NODISCARD tt_status tt_init_uniform_with(const tt_init_uniform_args *args, size_t size);

typedef struct tt_init_normal_args {
    tt_tensor *x;     /* required */
    double mean, std; /* required */
    TT_OPTIONS;
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_init_normal_args;

/* From N(mean, std^2), as tt_normal_().  tt_init_normal_(weight, 0, 0.02) */
TT_API TT_NODISCARD tt_status tt_init_normal_with(const tt_init_normal_args *args, size_t size);

typedef struct tt_init_trunc_normal_args {
    tt_tensor *x;     /* required */
    double mean, std; /* required; std is above 0 */
    TT_OPTIONS;
    double a, b;             /* the bounds, a below b, in x's units; both 0, the default: -2 and 2 */
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_init_trunc_normal_args;

/* From N(mean, std^2) between a and b, as PyTorch 1.13 draws it (2.15 draws again what lies outside).
 *   tt_init_trunc_normal_(weight, 0, 0.02, .a = -0.04, .b = 0.04) */
TT_API TT_NODISCARD tt_status tt_init_trunc_normal_with(const tt_init_trunc_normal_args *args, size_t size);

/* ---- by fans ---- */

/* What follows a layer. PyTorch's names: "leaky_relu", "relu", "tanh", "sigmoid", "linear" (also of convolutions),
 * "selu". */
typedef enum tt_nonlinearity {
    TT_NONLINEARITY_LEAKY_RELU,
    TT_NONLINEARITY_RELU,
    TT_NONLINEARITY_TANH,
    TT_NONLINEARITY_SIGMOID,
    TT_NONLINEARITY_LINEAR,
    TT_NONLINEARITY_SELU
} tt_nonlinearity;

/* The gain recommended for a nonlinearity; `negative_slope` counts for leaky_relu (PyTorch's default here is 0.01).
 * NaN and TT_ERR_INVALID for a value outside of the enum. */
TT_API double tt_init_calculate_gain(tt_nonlinearity nonlinearity, double negative_slope);

typedef struct tt_init_xavier_uniform_args {
    tt_tensor *x; /* required: of at least 2 dimensions */
    TT_OPTIONS;
    double gain;             /* 0, the default, is 1 */
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_init_xavier_uniform_args;

/* With s = gain sqrt(2 / (fan_in + fan_out)): from U(-sqrt(3) s, sqrt(3) s) / from N(0, s^2). Glorot and Bengio (2010).
 *   tt_init_xavier_uniform_(weight, .gain = tt_init_calculate_gain(TT_NONLINEARITY_TANH, 0)) */
TT_API TT_NODISCARD tt_status tt_init_xavier_uniform_with(const tt_init_xavier_uniform_args *args, size_t size);
TT_API TT_NODISCARD tt_status tt_init_xavier_normal_with(const tt_init_xavier_uniform_args *args, size_t size);

typedef enum tt_fan_mode { TT_FAN_IN, TT_FAN_OUT } tt_fan_mode;

typedef struct tt_init_kaiming_uniform_args {
    tt_tensor *x; /* required: of at least 2 dimensions */
    TT_OPTIONS;
    double a;                     /* the negative slope, of leaky_relu */
    tt_fan_mode mode;             /* TT_FAN_IN keeps the variance in forward, TT_FAN_OUT in backward */
    tt_nonlinearity nonlinearity; /* TT_NONLINEARITY_LEAKY_RELU is the default, as PyTorch's */
    tt_generator *generator;      /* NULL = the thread's default */
    char tt_end;                  /* not an option: see base.h */
} tt_init_kaiming_uniform_args;

/* With s = gain / sqrt(fan): from U(-sqrt(3) s, sqrt(3) s) / from N(0, s^2). He et al. (2015).
 *   tt_init_kaiming_normal_(weight, .mode = TT_FAN_OUT, .nonlinearity = TT_NONLINEARITY_RELU) */
TT_API TT_NODISCARD tt_status tt_init_kaiming_uniform_with(const tt_init_kaiming_uniform_args *args, size_t size);
TT_API TT_NODISCARD tt_status tt_init_kaiming_normal_with(const tt_init_kaiming_uniform_args *args, size_t size);

/* ---- orthogonal ---- */

typedef struct tt_init_orthogonal_args {
    tt_tensor *x; /* required: of at least 2 dimensions, seen as (K, the rest) */
    TT_OPTIONS;
    double gain;             /* 0, the default, is 1 */
    tt_generator *generator; /* NULL = the thread's default */
    char tt_end;             /* not an option: see base.h */
} tt_init_orthogonal_args;

/* Rows (or columns, whichever are fewer) of length `gain`, at right angles to each other, uniformly drawn. Saxe et al.
 * (2013). Takes rows x columns x the smaller of both steps.  tt_init_orthogonal_(weight, .gain = 2) */
TT_API TT_NODISCARD tt_status tt_init_orthogonal_with(const tt_init_orthogonal_args *args, size_t size);

#define TT_INIT_DIRAC_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_UNIFORM_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_NORMAL_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_TRUNC_NORMAL_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_XAVIER_UNIFORM_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_KAIMING_UNIFORM_ARGS_INIT TT_ARGS_INIT
#define TT_INIT_ORTHOGONAL_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_init_dirac_(...) tt_init_dirac_with(TT_ARGS(tt_init_dirac_args, .x = __VA_ARGS__))
#define tt_init_uniform_(x_, a_, ...) \
    tt_init_uniform_with(TT_ARGS(tt_init_uniform_args, .x = (x_), .a = (a_), .b = __VA_ARGS__))
#define tt_init_normal_(x_, mean_, ...) \
    tt_init_normal_with(TT_ARGS(tt_init_normal_args, .x = (x_), .mean = (mean_), .std = __VA_ARGS__))
#define tt_init_trunc_normal_(x_, mean_, ...) \
    tt_init_trunc_normal_with(TT_ARGS(tt_init_trunc_normal_args, .x = (x_), .mean = (mean_), .std = __VA_ARGS__))
#define tt_init_xavier_uniform_(...) tt_init_xavier_uniform_with(TT_ARGS(tt_init_xavier_uniform_args, .x = __VA_ARGS__))
#define tt_init_xavier_normal_(...) tt_init_xavier_normal_with(TT_ARGS(tt_init_xavier_uniform_args, .x = __VA_ARGS__))
#define tt_init_kaiming_uniform_(...) \
    tt_init_kaiming_uniform_with(TT_ARGS(tt_init_kaiming_uniform_args, .x = __VA_ARGS__))
#define tt_init_kaiming_normal_(...) \
    tt_init_kaiming_normal_with(TT_ARGS(tt_init_kaiming_uniform_args, .x = __VA_ARGS__))
#define tt_init_orthogonal_(...) tt_init_orthogonal_with(TT_ARGS(tt_init_orthogonal_args, .x = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
