/* The progress of a job's training, from what its ranks publish. */
#ifndef TT_CLI_TRAINING_H
#define TT_CLI_TRAINING_H

#include "comm/record/recorder.h"

typedef struct tt__training {
    int ranks;            /* that say something */
    tt__progress slowest; /* of them */
    double loss;          /* sum of those that are known, */
    int losses;           /* and how many they are */
    double samples_per_s; /* of all */
} tt__training;

/* Add a rank; `rate`: its samples a second. */
void tt__training_add(tt__training *training, const tt__progress *progress, double rate);

/* "epoch 2/5, step 3/10, loss 0.25, 12.3k samples/s", as far as it is known: the slowest one's step, the mean loss.
 * ranks > 0. Returns `text`. */
const char *tt__training_text(const tt__training *training, char *text, size_t size);

/* "3/10", or "3" where `all` is 0. Returns `text`. */
const char *tt__training_part(int64_t number, int64_t all, char *text, size_t size);

/* "950", "12.3k", "4.5M". Returns `text`. */
const char *tt__short_number(double x, char *text, size_t size);

#endif
