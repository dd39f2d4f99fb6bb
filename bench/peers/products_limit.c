/* Limit: the products and convolutions of one training step as bare calls of oneDNN, nothing else: no activation, no
 * norm, no loss, no optimizer. mlp, conv and gpt are the models of torch_train.py. Operands of convolutions lie as
 * oneDNN likes them, lines of matrices 16 elements further apart than they are long, so that no call waits for its
 * layout. For oneDNN 2. Build: gcc -O2 products_limit.c -ldnnl; run: OMP_NUM_THREADS=1 ./products_limit MODEL STEPS */
#define _GNU_SOURCE
#include "limit.h"

#include <dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 9, APART = 16, ROOM = 1 << 23 };

static float *operand[3]; /* of products: read, read, written */

static void *floats(size_t count) {
    float *memory = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (!memory)
        abort();
    for (size_t i = 0; i < count; i++)
        memory[i] = (float)(i % 13) * .01f - .06f;
    return memory;
}

/* ---- products */

/* c (M,N) = a (M,K) b (K,N), of which 'T' ones are stored transposed */
static void product(char ta, char tb, int M, int N, int K) {
    int lda = (ta == 'N' ? K : M) + APART, ldb = (tb == 'N' ? N : K) + APART;
    dnnl_sgemm(ta, tb, M, N, K, 1, operand[0], lda, operand[1], ldb, 0, operand[2], N + APART);
}

/* All three products of a linear layer: (B,in) -> (B,out). */
static void linear(int B, int in, int out, int first) {
    product('N', 'T', B, out, in);
    product('T', 'N', out, in, B);
    if (!first)
        product('N', 'N', B, in, out);
}

static void mlp(void) {
    linear(32, 784, 512, 1);
    linear(32, 512, 10, 0);
}

/* One head of T tokens and D channels: scores, values; and back. */
static void attention(int T, int D) {
    product('N', 'T', T, T, D); /* q k' */
    product('N', 'N', T, D, T); /* p v */
    product('T', 'N', T, D, T); /* p' g */
    product('N', 'T', T, T, D); /* g v' */
    product('N', 'N', T, D, T); /* ds k */
    product('T', 'N', T, D, T); /* ds' q */
}

static void gpt(void) {
    enum { B = 8, T = 128, C = 256, HEADS = 4, LAYERS = 4, V = 65 };
    for (int layer = 0; layer < LAYERS; layer++) {
        linear(B * T, C, 3 * C, 0);
        for (int i = 0; i < B * HEADS; i++)
            attention(T, C / HEADS);
        linear(B * T, C, C, 0);
        linear(B * T, C, 4 * C, 0);
        linear(B * T, 4 * C, C, 0);
    }
    linear(B * T, C, V, 0);
}

/* ---- convolutions */

typedef struct conv {
    dnnl_primitive_t run[3]; /* forward, data (NULL: not needed), weights */
    dnnl_exec_arg_t args[3][4];
} conv;

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static conv conv1, conv2;

static void must(dnnl_status_t status) {
    if (status) {
        fprintf(stderr, "products_limit: oneDNN's status %d\n", (int)status);
        exit(1);
    }
}

static dnnl_memory_t memory_of(const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, 0);
    dnnl_memory_t memory;
    must(dnnl_memory_create(&memory, md, engine, floats(dnnl_memory_desc_get_size(md) / sizeof(float))));
    return memory;
}

/* (N,C,H,H) -> (N,K,H-2,H-2), 3 x 3 */
static void conv_make(conv *c, int N, int C, int H, int K, int first) {
    dnnl_dims_t x = {N, C, H, H}, w = {K, C, 3, 3}, y = {N, K, H - 2, H - 2}, b = {K}, one = {1, 1}, none = {0, 0};
    dnnl_memory_desc_t mx, mw, my, mb;
    must(dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&mw, 4, w, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&mb, 1, b, dnnl_f32, dnnl_x));
    /* Winograd's kernels, with AVX-512 */
    dnnl_alg_kind_t alg = first ? dnnl_convolution_direct : dnnl_convolution_auto;
    dnnl_convolution_desc_t desc[3];
    must(dnnl_convolution_forward_desc_init(&desc[0], dnnl_forward_training, alg, &mx, &mw, &mb, &my, one, none, none));
    must(dnnl_convolution_backward_data_desc_init(&desc[1], alg, &mx, &mw, &my, one, none, none));
    if (C < 3) { /* here its own choice is half as fast */
        must(dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, dnnl_nhwc));
        must(dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, dnnl_nhwc));
    }
    must(dnnl_convolution_backward_weights_desc_init(&desc[2], alg, &mx, &mw, &mb, &my, one, none, none));
    static const dnnl_query_t queries[3][3] = {{dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
                                               {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
                                               {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};
    static const int names[3][4] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                                    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_BIAS},
                                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS}};
    dnnl_primitive_desc_t forward = NULL, pd;
    for (int i = 0; i < 3; i++) {
        if (i == 1 && first)
            continue;
        must(dnnl_primitive_desc_create(&pd, &desc[i], NULL, engine, forward));
        forward = forward ? forward : pd;
        for (int j = 0; j < 3; j++)
            c->args[i][j] = (dnnl_exec_arg_t){names[i][j], memory_of(pd, queries[i][j])};
        must(dnnl_memory_create(&c->args[i][3].memory, &mb, engine, floats((size_t)K)));
        c->args[i][3].arg = names[i][3];
        must(dnnl_primitive_create(&c->run[i], pd));
    }
}

static void conv_run(const conv *c, int direction) {
    must(dnnl_primitive_execute(c->run[direction], stream, direction == 1 ? 3 : 4, c->args[direction]));
}

static void conv_net(void) {
    if (!conv1.run[0]) {
        must(dnnl_engine_create(&engine, dnnl_cpu, 0));
        must(dnnl_stream_create(&stream, engine, 0));
        conv_make(&conv1, 64, 1, 28, 32, 1);
        conv_make(&conv2, 64, 32, 26, 64, 0);
    }
    conv_run(&conv1, 0);
    conv_run(&conv2, 0);
    linear(64, 9216, 128, 0);
    linear(64, 128, 10, 0);
    conv_run(&conv2, 2);
    conv_run(&conv2, 1);
    conv_run(&conv1, 2);
}

/* ---- */

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "";
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    void (*step)(void) = !strcmp(model, "mlp") ? mlp : !strcmp(model, "conv") ? conv_net : gpt;
    if (steps < 1 || (step == gpt && strcmp(model, "gpt") != 0)) {
        fprintf(stderr, "usage: %s mlp|conv|gpt STEPS\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < 3; i++)
        operand[i] = floats(ROOM);
    double seconds[BLOCKS];
    for (int i = 0; i < 3; i++)
        step();
    for (int block = 0; block < BLOCKS; block++) {
        double start = now();
        for (int i = 0; i < steps; i++)
            step();
        seconds[block] = (now() - start) / steps;
    }
    double middle = median(seconds, BLOCKS);
    printf("{\"bench\":\"step\",\"peer\":\"products\",\"model\":\"%s\",\"world\":1,"
           "\"ms_median\":%.4f,\"ms_min\":%.4f}\n",
           model, middle * 1e3, seconds[0] * 1e3);
    return 0;
}
