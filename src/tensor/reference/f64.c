/* The plain loops for f64. */
#define TYPE double
#define WIDE double
#define LOAD(v) (v)
#define STORE(w) (w)
#define FROM_I64(i) ((double)(i))
#define FROM_F64(f) ((double)(f))
#define TABLE tt__reference_f64
#include "tensor/reference/float_loops.h"
