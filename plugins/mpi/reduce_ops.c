/* MPI's names for element types and reduce ops. Its MIN and MAX of floats may lose a NaN, so those two are ours. */
#include "plugin.h"

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

/* into (n) := from (n) or into, whichever is smaller (larger); NaN wins. */
#define NAN_WINS(name, T, wins)                                            \
    static void name(void *from, void *into, int *n, MPI_Datatype *type) { \
        const T *x = from;                                                 \
        T *y = into;                                                       \
        (void)type;                                                        \
        for (int i = 0; i < *n; i++)                                       \
            y[i] = x[i] wins y[i] || x[i] != x[i] ? x[i] : y[i];           \
    }
NAN_WINS(min_f32, float, <)
NAN_WINS(max_f32, float, >)
NAN_WINS(min_f64, double, <)
NAN_WINS(max_f64, double, >)

/* Made at first use; they live as long as MPI. */
static tt_status own(MPI_Op *out, MPI_User_function *function) {
    static struct {
        MPI_User_function *function;
        MPI_Op op;
    } made[4];
    for (int i = 0; i < 4; i++) {
        if (!made[i].function) {
            tt_status status = mpi_check(MPI_Op_create(function, 1, &made[i].op), "MPI_Op_create");
            if (status)
                return status;
            made[i].function = function;
        }
        if (made[i].function == function) {
            *out = made[i].op;
            return TT_OK;
        }
    }
    return mpi_host->fail(TT_ERR_STATE, "mpi: more own reduce ops than there is room for");
}

tt_status mpi_reduce_op(MPI_Op *out, tt_dtype dtype, tt_reduce_op op) {
    if (dtype == TT_F32 && (op == TT_MIN || op == TT_MAX))
        return own(out, op == TT_MIN ? min_f32 : max_f32);
    if (dtype == TT_F64 && (op == TT_MIN || op == TT_MAX))
        return own(out, op == TT_MIN ? min_f64 : max_f64);
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
