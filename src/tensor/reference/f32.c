/* The plain loops for f32. */
#define TYPE float
#define WIDE float
#define LOAD(v) (v)
#define STORE(w) (w)
#define FROM_I64(i) ((float)(i))
#define FROM_F64(f) ((float)(f))
#define TABLE tt__reference_f32
#include "tensor/reference/float_loops.h"
