/* A convolution, or a graph of steps (cudnn_steps.h), as cudnn.cc takes it from descriptors and cudnn_run.cc computes
 * it. */
#ifndef FAKE_CUDA_CUDNN_RUN_H
#define FAKE_CUDA_CUDNN_RUN_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fake_cudnn {

enum { FLOAT = 0, DOUBLE = 1, HALF = 2, INT32 = 4, BFLOAT16 = 9, BOOLEAN = 11 };

struct tensor {
    int type;
    int64_t dim[4], stride[4], name, alignment;
    bool is_virtual, by_value; /* in no memory; its pointer is the host's */
};

struct window {
    int compute;
    int64_t before[2], after[2], dilation[2], stride[2];
};

enum direction { FORWARD, BACKWARD_WEIGHT, BACKWARD_DATA };

struct operation {
    direction makes;
    tensor x, y, w;
    window win;
    double alpha, beta;
};

/* One of a graph's operations; cudnn.cc has the kinds and cudnn_steps.cc the modes. */
struct step {
    int kind, mode;
    int64_t axis;
    tensor x, b, t, y;
    bool has_b, has_t;
};

/* What an engine does to numbers, so that a test sees that it was used. */
enum flaw { EXACT, NOISY, AS_TF32, ROUNDS_PARTS };

struct engine {
    operation op;
    int notes[4], note_count;
    flaw numbers;
    int64_t workspace;
    bool no_plan;            /* a plan of it can't be made */
    std::vector<step> steps; /* none: a convolution, op */
};

int64_t type_size(int type);

/* Do the sizes fit together? */
bool operation_fits(const operation &op);

/* Numbers of a type in memory. */
double element_load(int type, const void *p, int64_t i);
void element_store(int type, void *p, int64_t i, double value);
double element_rounded(int type, double value);

/* The bytes of workspace are filled with garbage. */
void operation_run(const engine &e, const void *x, void *y, void *w, void *workspace);

} /* namespace fake_cudnn */

#endif
