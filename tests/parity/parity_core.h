/* Sums, products, losses and views. */
#ifndef PARITY_CORE_H
#define PARITY_CORE_H

#include "parity.h"

PARITY(add, tt_add(in[0], in[1]))
PARITY(sub, tt_sub(in[0], in[1]))
PARITY(mul, tt_mul(in[0], in[1]))
PARITY(scale, tt_scale(in[0], NUMBER("factor", 1)))
PARITY(relu, tt_relu(in[0]))
PARITY(mean, tt_mean(in[0]))
PARITY(sum, tt_sum(in[0]))
PARITY(matmul, tt_matmul(in[0], in[1]))
PARITY(matmul_vector, tt_matmul(in[0], in[1]))
PARITY(linear, tt_linear(in[0], in[1], in[2]))
PARITY(log_softmax, tt_log_softmax(in[0], INT("dim", -1)))
PARITY(nll_loss, tt_nll_loss(in[0], in[1]))
PARITY(cross_entropy, tt_cross_entropy(in[0], in[1]))
PARITY(mse_loss, tt_mse_loss(in[0], in[1]))
PARITY(transpose, tt_transpose(in[0], INT("a", 0), INT("b", 1)))
PARITY(narrow, tt_narrow(in[0], INT("dim", 0), INT("start", 0), INT("length", 1)))
PARITY(flatten, tt_flatten(in[0], INT("start_dim", 0)))

#endif
