/* MPI's names for element types and reduce ops, and functions of our own where an MPI's differ from tutti/comm.h:
 *
 *   MIN and MAX of floats   MPI says nothing of NaN, which may get lost
 *   8 and 16 bits           Open MPI 4.1 adds with saturation where it has AVX; MPICH 4.0 takes the minimum of u8 as if
 *                           they had signs */
#include "plugin.h"

#include <math.h>
#include <stdint.h>

MPI_Datatype mpi_type(tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return MPI_FLOAT;
    case TT_F64:
        return MPI_DOUBLE;
    case TT_I32:
        return MPI_INT32_T;
    case TT_I64:
        return MPI_INT64_T;
    case TT_U8:
    case TT_BOOL:
        return MPI_UINT8_T;
    case TT_F16: /* these two are only moved */
    case TT_BF16:
        return MPI_UINT16_T;
    case TT_I8:
        return MPI_INT8_T;
    case TT_I16:
        return MPI_INT16_T;
    }
    return MPI_DATATYPE_NULL;
}

/* The functions that MPI calls: into (n) := from (n) op into. EACH is the loop for one type; x is an element of `from`,
 * y one of `into`. */
#define EACH(T, name, expression)                           \
    if (*type == (name)) {                                  \
        for (int i = 0; i < *n; i++) {                      \
            T x = ((const T *)from)[i], y = ((T *)into)[i]; \
            ((T *)into)[i] = (T)(expression);               \
        }                                                   \
        return;                                             \
    }
#define SMALL_INTEGERS(expression)         \
    EACH(uint8_t, MPI_UINT8_T, expression) \
    EACH(int8_t, MPI_INT8_T, expression)   \
    EACH(int16_t, MPI_INT16_T, expression)

static void sum(void *from, void *into, int *n, MPI_Datatype *type) { SMALL_INTEGERS((uint32_t)x + (uint32_t)y) }
static void product(void *from, void *into, int *n, MPI_Datatype *type) { SMALL_INTEGERS((uint32_t)x * (uint32_t)y) }
static void band(void *from, void *into, int *n, MPI_Datatype *type) { SMALL_INTEGERS(x & y) }
static void bor(void *from, void *into, int *n, MPI_Datatype *type) { SMALL_INTEGERS(x | y) }
static void bxor(void *from, void *into, int *n, MPI_Datatype *type) { SMALL_INTEGERS(x ^ y) }

static void min(void *from, void *into, int *n, MPI_Datatype *type) {
    SMALL_INTEGERS(x < y ? x : y)
    EACH(float, MPI_FLOAT, isnan(x) || x < y ? x : y)
    EACH(double, MPI_DOUBLE, isnan(x) || x < y ? x : y)
}

static void max(void *from, void *into, int *n, MPI_Datatype *type) {
    SMALL_INTEGERS(x > y ? x : y)
    EACH(float, MPI_FLOAT, isnan(x) || x > y ? x : y)
    EACH(double, MPI_DOUBLE, isnan(x) || x > y ? x : y)
}

static MPI_User_function *const functions[] = {
    [TT_SUM] = sum,   [TT_PRODUCT] = product, [TT_MIN] = min,  [TT_MAX] = max,
    [TT_BAND] = band, [TT_BOR] = bor,         [TT_BXOR] = bxor};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Return a reduce op of our own. It is made at its first use, and lives as long as MPI. */
static tt_status own(MPI_Op *out, tt_reduce_op op) {
    static struct {
        bool made;
        MPI_Op op;
    } ops[FUNCTIONS];
    if (!ops[op].made) {
        tt_status status = mpi_check(MPI_Op_create(functions[op], 1, &ops[op].op), "MPI_Op_create");
        if (status)
            return status;
        ops[op].made = true;
    }
    *out = ops[op].op;
    return TT_OK;
}

static bool needs_own(tt_dtype dtype, tt_reduce_op op) {
    bool is_float = dtype == TT_F32 || dtype == TT_F64;
    return dtype == TT_U8 || dtype == TT_I8 || dtype == TT_I16 || (is_float && (op == TT_MIN || op == TT_MAX));
}

tt_status mpi_reduce_op(MPI_Op *out, tt_dtype dtype, tt_reduce_op op) {
    if (needs_own(dtype, op) && (unsigned)op < FUNCTIONS && functions[op])
        return own(out, op);
    switch (op) {
    case TT_SUM:
        *out = MPI_SUM;
        return TT_OK;
    case TT_PRODUCT:
        *out = MPI_PROD;
        return TT_OK;
    case TT_MIN:
        *out = MPI_MIN;
        return TT_OK;
    case TT_MAX:
        *out = MPI_MAX;
        return TT_OK;
    case TT_BAND:
        *out = MPI_BAND;
        return TT_OK;
    case TT_BOR:
        *out = MPI_BOR;
        return TT_OK;
    case TT_BXOR:
        *out = MPI_BXOR;
        return TT_OK;
    case TT_AVG: /* made of a sum, by Tutti */
    case TT_PREMUL_SUM:
        break;
    }
    return mpi_host->fail(TT_ERR_UNSUPPORTED, "mpi: no reduce op %s of %s", mpi_host->reduce_op_name(op),
                          mpi_host->dtype_name(dtype));
}
