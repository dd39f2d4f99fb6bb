/* The plain loops for bf16. */
#define TYPE uint16_t
#define WIDE float
#define LOAD(v) tt__float_of_bf16(v)
#define STORE(w) tt__bf16_of_float(w)
#define FROM_I64(i) tt__bf16_of_float((float)(i))
#define FROM_F64(f) tt__bf16_of_float((float)(f))
#define TABLE tt__reference_bf16
#include "tensor/reference/float_loops.h"
