/* Runs operators for parity.py, which compares them with PyTorch. A request on stdin is
 *
 *   NAME INPUTS BACKWARD [NUMBER=VALUE...]
 *   DTYPE GRAD NDIM SIZE... ORDER...     for each input, then its elements, row-major
 *   ...                                  with BACKWARD 1 the gradient of the first result, as an input
 *
 * where an input is permuted to ORDER after it is made, so that its memory isn't row-major; "-": no input (NULL). The
 * answer is "error TEXT", or "ok RESULTS", for each result "DTYPE NDIM SIZE..." and its elements, and then the same for
 * each input that has GRAD 1. TT_PARITY_DEVICE=cuda:0: it computes there. */
#include "parity_compare.h"
#include "parity_conv.h"
#include "parity_copies.h"
#include "parity_core.h"
#include "parity_index.h"
#include "parity_layers.h"
#include "parity_modules.h"
#include "parity_pointwise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const tt_device *device; /* on which to compute */

static void die(const char *what) {
    fprintf(stderr, "parity: %s\n", what);
    exit(2);
}

static const parity_op *find_op(const char *name) {
    for (const parity_op *op = parity_ops; op; op = op->next)
        if (!strcmp(op->name, name))
            return op;
    fprintf(stderr, "parity: no operator \"%s\"\n", name);
    exit(2);
}

static tt_dtype dtype_of(const char *name) {
    for (int d = 0; tt_dtype_size((tt_dtype)d); d++)
        if (!strcmp(tt_dtype_name((tt_dtype)d), name))
            return (tt_dtype)d;
    die("expected an element type");
    return TT_F32;
}

/* ---- reading */

static int64_t read_int(void) {
    int64_t value;
    if (scanf("%" SCNd64, &value) != 1)
        die("expected a number");
    return value;
}

/* Read an input; *leaf: what collects its gradient, if it is to. */
static tt_tensor *read_input(tt_tensor **leaf) {
    char dtype[16];
    tt_shape shape = {0};
    tt_shape order = {0};
    *leaf = NULL;
    if (scanf("%15s", dtype) != 1)
        die("expected an input");
    if (!strcmp(dtype, "-"))
        return NULL;
    int64_t grad = read_int();
    shape.ndim = (int)read_int();
    if (shape.ndim < 0 || shape.ndim > TT_MAX_DIMS)
        die("too many dimensions");
    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = read_int();
    for (int d = 0; d < shape.ndim; d++)
        order.dim[d] = read_int();
    if (getchar() != '\n')
        die("expected a line's end");
    tt_tensor *x = tt_empty(shape, dtype_of(dtype));
    size_t bytes = x ? (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x)) : 0;
    if (!x || fread(tt_tensor_data(x), 1, bytes, stdin) != bytes)
        die("expected elements");
    x = tt_to_device(x, device);
    if (grad)
        *leaf = tt_requires_grad_(x, true);
    order.ndim = shape.ndim;
    return tt_permute(x, order);
}

static void read_numbers(parity_call *call, char *rest) {
    for (char *word = strtok(rest, " \n"); word; word = strtok(NULL, " \n")) {
        char *equals = strchr(word, '=');
        if (!equals || equals - word >= (int)sizeof call->number->name || call->numbers == PARITY_NUMBERS)
            die("expected NAME=NUMBER");
        memcpy(call->number[call->numbers].name, word, (size_t)(equals - word));
        call->number[call->numbers++].value = strtod(equals + 1, NULL);
    }
}

/* ---- answering */

static void write_tensor(tt_tensor *x) {
    tt_tensor *whole = tt_contiguous(tt_to_device(x, TT_CPU));
    if (!whole) {
        puts("none");
        return;
    }
    printf("%s %d", tt_dtype_name(tt_tensor_dtype(x)), tt_tensor_dim(x));
    for (int d = 0; d < tt_tensor_dim(x); d++)
        printf(" %" PRId64, tt_tensor_size(x, d));
    putchar('\n');
    fwrite(tt_tensor_data(whole), tt_dtype_size(tt_tensor_dtype(x)), (size_t)tt_tensor_numel(x), stdout);
}

static void answer(const parity_call *call, tt_status status) {
    bool made = call->results > 0;
    for (int i = 0; i < call->results; i++)
        made &= call->result[i] != NULL;
    if (status || !made) {
        printf("error %s\n", tt_last_error());
        tt_ignore(tt_item(NULL, &(double){0})); /* the scope's error is told */
        return;
    }
    printf("ok %d\n", call->results);
    for (int i = 0; i < call->results; i++)
        write_tensor(call->result[i]);
    for (int i = 0; i < call->inputs; i++)
        if (call->leaf[i])
            write_tensor(tt_grad(call->leaf[i]));
}

static void serve(const char *name, int inputs, bool backward, char *rest) {
    TT_AUTO_SCOPE;
    parity_call call = {.inputs = inputs};
    tt_tensor *ignored, *gradient;
    if (inputs < 0 || inputs > PARITY_INPUTS)
        die("too many inputs");
    read_numbers(&call, rest);
    for (int i = 0; i < inputs; i++)
        call.in[i] = read_input(&call.leaf[i]);
    gradient = backward ? read_input(&ignored) : NULL;
    find_op(name)->run(&call);
    tt_status status = backward && call.result[0] ? tt_backward(call.result[0], .gradient = gradient) : TT_OK;
    answer(&call, status);
    tt_module_free(call.module);
    fflush(stdout);
}

int main(void) {
    char line[2048], name[48];
    int inputs, backward, read;
    const char *name_of_device = getenv("TT_PARITY_DEVICE");
    device = name_of_device ? tt_device_get(name_of_device) : TT_CPU;
    if (!device)
        die(tt_last_error());
    while (fgets(line, sizeof line, stdin)) {
        if (*line == '\n')
            continue;
        if (sscanf(line, "%47s %d %d%n", name, &inputs, &backward, &read) != 3)
            die("expected NAME INPUTS BACKWARD");
        serve(name, inputs, backward, line + read);
    }
    return 0;
}
