/* Attention as a graph that cuDNN has fused kernels for. They are found by the graph's form: products, pointwise
 * functions and sums in the order in which NVIDIA's cudnn-frontend composes them. Scores are never stored.
 * tensor/reference/attention_loops.h says what is computed. */
#include "tensor/cuda/libraries/cuda_dnn_graph.h"

enum { MOST_OPERATIONS = 24, FIRST_UNNAMED = 1000 };

/* What is being described. After a failure nothing more is made: the functions return NULL. */
typedef struct dnn_build {
    tt__dnn_use *use;
    tt__dnn_graph *graph;
    const tt__dnn_heads *heads;
    int type; /* of the matrices */
    int status;
    int operations;
    tt__dnn_object operation[MOST_OPERATIONS];
    tt__dnn_object scale, hidden;
} dnn_build;

/* ---- parts ---- */

static tt__dnn_object build_part(dnn_build *b, int kind, int n, const tt__dnn_attribute *attributes) {
    tt__dnn_object object = NULL;
    if (!b->status)
        b->status = tt__dnn_part(b->use, b->graph, kind, n, attributes, &object);
    return object;
}

static void build_operation(dnn_build *b, int kind, int n, const tt__dnn_attribute *attributes) {
    tt__dnn_object object = build_part(b, kind, n, attributes);
    if (object)
        b->operation[b->operations++] = object;
}

/* flag: TT__DNN_TENSOR_VIRTUAL, TT__DNN_TENSOR_BY_VALUE, or 0: it has memory. */
static tt__dnn_object build_tensor(dnn_build *b, int64_t name, int type, const int64_t dim[4], const int64_t step[4],
                                   int flag) {
    static const int64_t alignment = 16;
    static const bool yes = true;
    const tt__dnn_attribute all[] = {
        {TT__DNN_TENSOR_TYPE, TT__DNN_AS_DATA_TYPE, 1, &type},       {TT__DNN_TENSOR_DIMS, TT__DNN_AS_INT64, 4, dim},
        {TT__DNN_TENSOR_STRIDES, TT__DNN_AS_INT64, 4, step},         {TT__DNN_TENSOR_NAME, TT__DNN_AS_INT64, 1, &name},
        {TT__DNN_TENSOR_ALIGNMENT, TT__DNN_AS_INT64, 1, &alignment}, {flag, TT__DNN_AS_BOOL, 1, &yes}};
    return build_part(b, TT__DNN_TENSOR, flag ? 6 : 5, all);
}

static tt__dnn_object build_value(dnn_build *b, int64_t name) {
    static const int64_t ones[4] = {1, 1, 1, 1};
    return build_tensor(b, name, TT__DNN_FLOAT, ones, ones, TT__DNN_TENSOR_BY_VALUE);
}

/* Matrices (rows,columns), or transposed: (columns,rows) in the same memory. */
static tt__dnn_object build_matrix(dnn_build *b, int m, int64_t rows, int64_t columns, bool transposed) {
    const int64_t *step = b->heads->step[m], B = b->heads->B, H = b->heads->H;
    const int64_t dim[2][4] = {{B, H, rows, columns}, {B, H, columns, rows}};
    const int64_t steps[2][4] = {{step[0], step[1], step[2], 1}, {step[0], step[1], 1, step[2]}};
    return build_tensor(b, TT__DNN_MATRIX + m, b->type, dim[transposed], steps[transposed], 0);
}

/* An intermediate tensor, which is never stored. */
static tt__dnn_object build_virtual(dnn_build *b, int type, const int64_t dim[4], const int64_t step[4]) {
    return build_tensor(b, FIRST_UNNAMED + b->graph->count, type, dim, step, TT__DNN_TENSOR_VIRTUAL);
}

/* (T,columns) for each head. */
static tt__dnn_object build_row_tensor(dnn_build *b, int type, int64_t columns) {
    const tt__dnn_heads *h = b->heads;
    const int64_t dim[4] = {h->B, h->H, h->T, columns};
    const int64_t step[4] = {h->H * h->T * columns, h->T * columns, columns, 1};
    return build_virtual(b, type, dim, step);
}

static tt__dnn_object build_scores(dnn_build *b, int type) { return build_row_tensor(b, type, b->heads->S); }

/* A number for each row, f32, in memory. */
static tt__dnn_object build_numbers(dnn_build *b, int64_t name) {
    const tt__dnn_heads *h = b->heads;
    const int64_t dim[4] = {h->B, h->H, h->T, 1};
    const int64_t step[4] = {h->H * h->T, h->T, 1, 1};
    return build_tensor(b, name, TT__DNN_FLOAT, dim, step, 0);
}

/* ---- operations: each returns its result, y ---- */

typedef struct dnn_pointwise {
    int mode, compute;
    tt__dnn_object x, b, t; /* b, t NULL: the function has fewer arguments */
    int64_t axis;           /* of TT__DNN_INDEX */
} dnn_pointwise;

static tt__dnn_object build_pointwise(dnn_build *b, const dnn_pointwise *p, tt__dnn_object y) {
    const tt__dnn_attribute how[] = {{TT__DNN_POINTWISE_MODE, TT__DNN_AS_POINTWISE_MODE, 1, &p->mode},
                                     {TT__DNN_POINTWISE_COMPUTE, TT__DNN_AS_DATA_TYPE, 1, &p->compute},
                                     {TT__DNN_POINTWISE_AXIS, TT__DNN_AS_INT64, 1, &p->axis}};
    tt__dnn_object function = build_part(b, TT__DNN_POINTWISE, p->mode == TT__DNN_INDEX ? 3 : 2, how);
    const tt__dnn_attribute all[] = {{TT__DNN_OP_POINTWISE_HOW, TT__DNN_AS_DESCRIPTOR, 1, &function},
                                     {TT__DNN_OP_POINTWISE_X, TT__DNN_AS_DESCRIPTOR, 1, &p->x},
                                     {TT__DNN_OP_POINTWISE_Y, TT__DNN_AS_DESCRIPTOR, 1, &y},
                                     {TT__DNN_OP_POINTWISE_B, TT__DNN_AS_DESCRIPTOR, 1, &p->b},
                                     {TT__DNN_OP_POINTWISE_T, TT__DNN_AS_DESCRIPTOR, 1, &p->t}};
    build_operation(b, TT__DNN_OP_POINTWISE, p->t ? 5 : p->b ? 4 : 3, all);
    return y;
}

/* Of f32. */
static tt__dnn_object build_function(dnn_build *b, int mode, tt__dnn_object x, tt__dnn_object other, tt__dnn_object y) {
    const dnn_pointwise p = {.mode = mode, .compute = TT__DNN_FLOAT, .x = x, .b = other};
    return build_pointwise(b, &p, y);
}

static tt__dnn_object build_product(dnn_build *b, tt__dnn_object x, tt__dnn_object other, tt__dnn_object y) {
    static const int compute = TT__DNN_FLOAT;
    const tt__dnn_attribute how = {TT__DNN_MATMUL_COMPUTE, TT__DNN_AS_DATA_TYPE, 1, &compute};
    tt__dnn_object function = build_part(b, TT__DNN_MATMUL, 1, &how);
    const tt__dnn_attribute all[] = {{TT__DNN_OP_MATMUL_HOW, TT__DNN_AS_DESCRIPTOR, 1, &function},
                                     {TT__DNN_OP_MATMUL_A, TT__DNN_AS_DESCRIPTOR, 1, &x},
                                     {TT__DNN_OP_MATMUL_B, TT__DNN_AS_DESCRIPTOR, 1, &other},
                                     {TT__DNN_OP_MATMUL_C, TT__DNN_AS_DESCRIPTOR, 1, &y}};
    build_operation(b, TT__DNN_OP_MATMUL, 4, all);
    return y;
}

/* Of each row. */
static tt__dnn_object build_reduction(dnn_build *b, int mode, tt__dnn_object x) {
    static const int compute = TT__DNN_FLOAT;
    tt__dnn_object y = build_row_tensor(b, TT__DNN_FLOAT, 1);
    const tt__dnn_attribute how[] = {{TT__DNN_REDUCTION_MODE, TT__DNN_AS_REDUCTION_MODE, 1, &mode},
                                     {TT__DNN_REDUCTION_COMPUTE, TT__DNN_AS_DATA_TYPE, 1, &compute}};
    tt__dnn_object function = build_part(b, TT__DNN_REDUCTION, 2, how);
    const tt__dnn_attribute all[] = {{TT__DNN_OP_REDUCTION_HOW, TT__DNN_AS_DESCRIPTOR, 1, &function},
                                     {TT__DNN_OP_REDUCTION_X, TT__DNN_AS_DESCRIPTOR, 1, &x},
                                     {TT__DNN_OP_REDUCTION_Y, TT__DNN_AS_DESCRIPTOR, 1, &y}};
    build_operation(b, TT__DNN_OP_REDUCTION, 3, all);
    return y;
}

/* x's memory, seen as y. */
static tt__dnn_object build_view(dnn_build *b, tt__dnn_object x, tt__dnn_object y) {
    const tt__dnn_attribute all[] = {{TT__DNN_OP_RESHAPE_X, TT__DNN_AS_DESCRIPTOR, 1, &x},
                                     {TT__DNN_OP_RESHAPE_Y, TT__DNN_AS_DESCRIPTOR, 1, &y}};
    build_operation(b, TT__DNN_OP_RESHAPE, 2, all);
    return y;
}

/* Scores, transposed, in the matrices' type. */
static tt__dnn_object build_transposed(dnn_build *b, tt__dnn_object scores) {
    const tt__dnn_heads *h = b->heads;
    const int64_t dim[4] = {h->B, h->H, h->S, h->T};
    const int64_t step[4] = {h->H * h->T * h->S, h->T * h->S, 1, h->S};
    return build_view(b, scores, build_virtual(b, b->type, dim, step));
}

/* ---- attention ---- */

/* Where attention is causal, hide from row t the scores after number t. */
static tt__dnn_object build_hidden(dnn_build *b, tt__dnn_object scores) {
    if (!b->heads->causal)
        return scores;
    const dnn_pointwise rows = {.mode = TT__DNN_INDEX, .compute = TT__DNN_FLOAT, .x = scores, .axis = 2};
    const dnn_pointwise columns = {.mode = TT__DNN_INDEX, .compute = TT__DNN_FLOAT, .x = scores, .axis = 3};
    tt__dnn_object row = build_pointwise(b, &rows, build_scores(b, TT__DNN_INT32));
    tt__dnn_object column = build_pointwise(b, &columns, build_scores(b, TT__DNN_INT32));
    const dnn_pointwise seen = {.mode = TT__DNN_AT_LEAST, .compute = TT__DNN_BOOLEAN, .x = row, .b = column};
    const dnn_pointwise choice = {.mode = TT__DNN_SELECT,
                                  .compute = TT__DNN_FLOAT,
                                  .x = scores,
                                  .b = b->hidden,
                                  .t = build_pointwise(b, &seen, build_scores(b, TT__DNN_BOOLEAN))};
    return build_pointwise(b, &choice, build_scores(b, TT__DNN_FLOAT));
}

/* scale q k, where k is transposed */
static tt__dnn_object build_scaled(dnn_build *b, tt__dnn_object q, tt__dnn_object k) {
    tt__dnn_object scores = build_product(b, q, k, build_scores(b, TT__DNN_FLOAT));
    return build_function(b, TT__DNN_MUL, scores, b->scale, build_scores(b, TT__DNN_FLOAT));
}

static void build_forward(dnn_build *b) {
    const tt__dnn_heads *h = b->heads;
    tt__dnn_object q = build_matrix(b, TT__DNN_Q, h->T, h->D, false), k = build_matrix(b, TT__DNN_K, h->S, h->D, true);
    tt__dnn_object v = build_matrix(b, TT__DNN_V, h->S, h->Dv, false),
                   o = build_matrix(b, TT__DNN_O, h->T, h->Dv, false);
    tt__dnn_object scores = build_hidden(b, build_scaled(b, q, k));
    tt__dnn_object max = build_reduction(b, TT__DNN_REDUCE_MAX, scores);
    tt__dnn_object less = build_function(b, TT__DNN_SUB, scores, max, build_scores(b, TT__DNN_FLOAT));
    tt__dnn_object power = build_function(b, TT__DNN_EXP, less, NULL, build_scores(b, TT__DNN_FLOAT));
    tt__dnn_object sum = build_reduction(b, TT__DNN_REDUCE_ADD, power);
    tt__dnn_object log = build_function(b, TT__DNN_LOG, sum, NULL, build_row_tensor(b, TT__DNN_FLOAT, 1));
    build_function(b, TT__DNN_ADD, max, log, build_numbers(b, TT__DNN_SUMS));
    build_product(b, build_function(b, TT__DNN_DIV, power, sum, build_scores(b, b->type)), v, o);
}

/* g.o of each row */
static tt__dnn_object build_means(dnn_build *b, tt__dnn_object g) {
    const tt__dnn_heads *h = b->heads;
    tt__dnn_object o = build_matrix(b, TT__DNN_O, h->T, h->Dv, false);
    tt__dnn_object products = build_function(b, TT__DNN_MUL, g, o, build_row_tensor(b, TT__DNN_FLOAT, h->Dv));
    return build_function(b, TT__DNN_MUL, build_reduction(b, TT__DNN_REDUCE_ADD, products), build_value(b, TT__DNN_ONE),
                          build_numbers(b, TT__DNN_MEANS));
}

/* The shares p of scores. */
static tt__dnn_object build_shares(dnn_build *b, tt__dnn_object q, tt__dnn_object k) {
    tt__dnn_object scaled = build_scaled(b, q, k), sums = build_numbers(b, TT__DNN_SUMS);
    tt__dnn_object less = build_function(b, TT__DNN_SUB, scaled, sums, build_scores(b, TT__DNN_FLOAT));
    return build_function(b, TT__DNN_EXP, build_hidden(b, less), NULL, build_scores(b, TT__DNN_FLOAT));
}

/* dq is the product itself: cuDNN then adds up in one order. With an f32 tensor in between it would be faster, but add
 * parts as they come. */
static void build_backward(dnn_build *b) {
    const tt__dnn_heads *h = b->heads;
    tt__dnn_object q = build_matrix(b, TT__DNN_Q, h->T, h->D, false), k = build_matrix(b, TT__DNN_K, h->S, h->D, true);
    tt__dnn_object v = build_matrix(b, TT__DNN_V, h->S, h->Dv, true),
                   g = build_matrix(b, TT__DNN_G, h->T, h->Dv, false);
    tt__dnn_object means = build_means(b, g), shares = build_shares(b, q, k);
    build_product(b, build_transposed(b, shares), g, build_matrix(b, TT__DNN_DV, h->S, h->Dv, false));
    tt__dnn_object pulls = build_product(b, g, v, build_scores(b, TT__DNN_FLOAT));
    tt__dnn_object above = build_function(b, TT__DNN_SUB, pulls, means, build_scores(b, TT__DNN_FLOAT));
    tt__dnn_object slopes = build_function(b, TT__DNN_MUL, above, shares, build_scores(b, TT__DNN_FLOAT));
    slopes = build_function(b, TT__DNN_MUL, slopes, b->scale, build_scores(b, TT__DNN_FLOAT));
    build_product(b, build_transposed(b, slopes), q, build_matrix(b, TT__DNN_DK, h->S, h->D, false));
    const int64_t dim[4] = {h->B, h->H, h->S, h->D};
    const int64_t step[4] = {h->step[TT__DNN_K][0], h->step[TT__DNN_K][1], h->step[TT__DNN_K][2], 1};
    tt__dnn_object rows = build_view(b, k, build_virtual(b, b->type, dim, step));
    build_product(b, slopes, rows, build_matrix(b, TT__DNN_DQ, h->T, h->D, false));
}

int tt__dnn_attention_graph(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph) {
    dnn_build b = {.use = use, .graph = graph, .heads = &key->heads, .type = tt__dnn_types[key->dtype]};
    b.scale = build_value(&b, TT__DNN_SCALE);
    b.hidden = key->heads.causal ? build_value(&b, TT__DNN_HIDDEN) : NULL;
    if (key->direction == TT__DNN_ATTENDS)
        build_forward(&b);
    else
        build_backward(&b);
    return b.status ? b.status : tt__dnn_graph_of(use, b.operations, b.operation, graph);
}
