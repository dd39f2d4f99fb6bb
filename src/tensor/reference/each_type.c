/* The plain loops of one element type. This file is compiled once for each of them (cmake/TuttiTargets.cmake), with
 * TABLE, the name of its table, and TT__TYPE_f32 or the like defined. common_loops.h says what the other names mean. */
#if defined TT__TYPE_f32 || defined TT__TYPE_f64
#ifdef TT__TYPE_f32
#define TYPE float
#else
#define TYPE double
#endif
#define WIDE TYPE
#define LOAD(v) (v)
#define STORE(w) (w)
#define FROM_I64(i) ((TYPE)(i))
#define FROM_F64(f) ((TYPE)(f))
#include "tensor/reference/float_loops.h"

#elif defined TT__TYPE_f16
#define TYPE uint16_t
#define WIDE float
#define LOAD(v) tt__float_of_f16(v)
#define STORE(w) tt__f16_of_float(w)
#define FROM_I64(i) STORE((float)(i))
#define FROM_F64(f) STORE((float)(f))
#include "tensor/reference/float_loops.h"

#elif defined TT__TYPE_bf16
#define TYPE uint16_t
#define WIDE float
#define LOAD(v) tt__float_of_bf16(v)
#define STORE(w) tt__bf16_of_float(w)
#define FROM_I64(i) STORE((float)(i))
#define FROM_F64(f) STORE((float)(f))
#include "tensor/reference/float_loops.h"

#elif defined TT__TYPE_bool
#define TYPE uint8_t
#define WIDE unsigned
#define LOAD(v) ((v) != 0)
#define STORE(w) ((uint8_t)((w) != 0))
#define FROM_I64(i) STORE(i)
#define FROM_F64(f) STORE(f)
#include "tensor/reference/int_loops.h"

#else
#if defined TT__TYPE_i8
#define TYPE int8_t
#define LEAST INT8_MIN
#define MOST INT8_MAX
#elif defined TT__TYPE_i16
#define TYPE int16_t
#define LEAST INT16_MIN
#define MOST INT16_MAX
#elif defined TT__TYPE_i32
#define TYPE int32_t
#define LEAST INT32_MIN
#define MOST INT32_MAX
#elif defined TT__TYPE_i64
#define TYPE int64_t
#define LEAST INT64_MIN
#define MOST INT64_MAX
#elif defined TT__TYPE_u8
#define TYPE uint8_t
#define LEAST 0
#define MOST UINT8_MAX
#endif
#define WIDE uint64_t /* wraps */
#define LOAD(v) ((uint64_t)(v))
#define STORE(w) ((TYPE)(w))
#define FROM_I64(i) ((TYPE)(i))
#define FROM_F64(f) ((TYPE)tt__int_of_f64((f), LEAST, MOST))
#include "tensor/reference/int_loops.h"
#endif
