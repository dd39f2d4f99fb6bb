/* The plain loops for bool. */
#define TYPE uint8_t
#define WIDE unsigned
#define LOAD(v) ((v) != 0)
#define STORE(w) ((uint8_t)((w) != 0))
#define FROM_I64(i) ((uint8_t)((i) != 0))
#define FROM_F64(f) ((uint8_t)((f) != 0))
#define TABLE tt__reference_bool
#include "tensor/reference/int_loops.h"
