/* The plain loops for f16. */
#define TYPE uint16_t
#define WIDE float
#define LOAD(v) tt__float_of_f16(v)
#define STORE(w) tt__f16_of_float(w)
#define FROM_I64(i) tt__f16_of_float((float)(i))
#define FROM_F64(f) tt__f16_of_float((float)(f))
#define TABLE tt__reference_f16
#include "tensor/reference/float_loops.h"
