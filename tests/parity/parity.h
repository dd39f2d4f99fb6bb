/* One call of an operator, as parity.py asks for it: inputs, numbers by name, results. */
#ifndef PARITY_H
#define PARITY_H

#include <tutti/autograd.h>
#include <tutti/functional.h>
#include <tutti/layers.h>

#include <stdio.h>
#include <string.h>

enum { PARITY_INPUTS = 28, PARITY_NUMBERS = 24, PARITY_RESULTS = 4 };

typedef struct parity_call {
    int inputs, numbers, results;
    tt_tensor *in[PARITY_INPUTS];
    tt_tensor *leaf[PARITY_INPUTS]; /* collects an input's gradient; NULL: none is wanted */
    struct {
        char name[24];
        double value;
    } number[PARITY_NUMBERS];
    tt_tensor *result[PARITY_RESULTS]; /* the first has the gradient; NULL after an error */
    tt_module *module;                 /* of the call, freed at its end */
} parity_call;

typedef struct parity_op {
    const char *name;
    void (*run)(parity_call *call);
    struct parity_op *next;
} parity_op;

static parity_op *parity_ops; /* all of them */

/* Behind a definition of parity_NAME(): it can be asked for. */
#define PARITY_OP(called)                                                \
    __attribute__((constructor)) static void list_##called(void) {       \
        static parity_op op = {.name = #called, .run = parity_##called}; \
        op.next = parity_ops;                                            \
        parity_ops = &op;                                                \
    }

/* A number of the call, or `otherwise`. */
static inline double parity_number(const parity_call *call, const char *name, double otherwise) {
    for (int i = 0; i < call->numbers; i++)
        if (!strcmp(call->number[i].name, name))
            return call->number[i].value;
    return otherwise;
}

static inline int parity_int(const parity_call *call, const char *name, int otherwise) {
    return (int)parity_number(call, name, otherwise);
}

/* NAME0=..., NAME1=... */
static inline tt_shape parity_shape(const parity_call *c, const char *name, int ndim) {
    tt_shape shape = {.ndim = ndim};
    for (int d = 0; d < ndim; d++) {
        char each[24];
        snprintf(each, sizeof each, "%s%d", name, d);
        shape.dim[d] = (int64_t)parity_number(c, each, 0);
    }
    return shape;
}

/* A switch of the call. */
static inline bool parity_bool(const parity_call *c, const char *name) { return parity_int(c, name, 0) != 0; }

/* The one result of a call. */
static inline void parity_give(parity_call *call, tt_tensor *y) { call->result[call->results++] = y; }

/* PARITY(add, tt_add(in[0], in[1])) defines parity_add(). */
#define PARITY(name, expression)                \
    static void parity_##name(parity_call *c) { \
        tt_tensor **in = c->in;                 \
        (void)in;                               \
        parity_give(c, expression);             \
    }                                           \
    PARITY_OP(name)
#define NUMBER(name, otherwise) parity_number(c, name, otherwise)
#define INT(name, otherwise) parity_int(c, name, otherwise)

#endif
