/* The plain loops for u8. */
#define TYPE uint8_t
#define WIDE uint64_t /* wraps */
#define LOAD(v) ((uint64_t)(v))
#define STORE(w) ((TYPE)(w))
#define FROM_I64(i) ((TYPE)(i))
#define FROM_F64(f) ((TYPE)tt__int_of_f64((f), 0, UINT8_MAX))
#define TABLE tt__reference_u8
#include "tensor/reference/int_loops.h"
