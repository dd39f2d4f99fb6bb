/* The plain loops for i64. */
#define TYPE int64_t
#define WIDE uint64_t /* wraps */
#define LOAD(v) ((uint64_t)(v))
#define STORE(w) ((TYPE)(w))
#define FROM_I64(i) ((TYPE)(i))
#define FROM_F64(f) ((TYPE)tt__int_of_f64((f), INT64_MIN, INT64_MAX))
#define TABLE tt__reference_i64
#include "tensor/reference/int_loops.h"
