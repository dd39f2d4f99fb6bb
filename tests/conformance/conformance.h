/* The conformance suite: every collective and message over every transport and back end, compared with a naive
 * reference.
 *
 * The native back end must give the reference's bits: the documented order of summation. Other engines sum in an order
 * of their own, so floats are compared with the bound on rounding errors that holds for any order; integers, minima and
 * what is only moved must be exact there, too. */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include "support/ranks.h"

#include <stdint.h>

enum { MAX_BYTES = 1200000, MAX_RANKS = 16 };
enum { SYMMETRIC, PLAIN, MIXED, KINDS }; /* of memory; mixed: symmetric on even ranks */

/* One rank. Two regions of each kind of memory, MAX_BYTES each. */
typedef struct ctx {
    tt_group *group;
    int rank, world;
    bool native;
    unsigned char *symmetric[2], *plain[2];
    unsigned char *inputs[MAX_RANKS]; /* what each rank puts in */
    unsigned char *want;              /* what must come out */
    unsigned cases;                   /* run so far: chooses the kind of memory and whether to call asynchronously */
    int kind;
    bool async;
} ctx;

/* Choose memory and manner of the next case. */
void next_case(ctx *c);
void *buffer(const ctx *c, int which);

/* Wait for a work, in one of several ways. */
void finish(ctx *c, tt_work *work);

/* CALL(c, tt_all_reduce, c->group, buf, n, TT_F32, TT_SUM): synchronously or not. */
#define CALL(c, function, ...)                               \
    do {                                                     \
        if ((c)->async) {                                    \
            tt_work *work_ = NULL;                           \
            CHECK_OK(function(__VA_ARGS__, .work = &work_)); \
            finish(c, work_);                                \
        } else {                                             \
            CHECK_OK(function(__VA_ARGS__));                 \
        }                                                    \
    } while (0)

/* ---- reference.c */

/* inputs[r] (from + count), from element `from` on := what rank r puts into case `seed`: numbers small enough for
 * products; floats with zeros of both signs and a few NaN. */
void fill(void *buf, size_t from, size_t count, tt_dtype dtype, tt_reduce_op op, int r, unsigned seed);

/* Bytes that tell rank, place and case. */
void fill_bytes(void *buf, size_t bytes, int r, unsigned seed);

/* This rank's factor of TT_PREMUL_SUM. */
double factor_of(int r);

/* The engine rounds sums of 16 bits to their type after each addition (nccl); others sum them in f32. */
extern bool rounds_each_step;

/* Does comm.h have such a reduction? */
bool is_allowed(tt_dtype dtype, tt_reduce_op op);

/* Does got (count) hold the reduction of inputs[0..n-1] (count, from element `at` on)? Complains of the first element
 * that doesn't. */
bool matches(const void *got, unsigned char *const *inputs, int n, size_t at, size_t count, tt_dtype dtype,
             tt_reduce_op op, bool exact);

/* ---- what is tested, each on all ranks */

void test_all_reduce(ctx *c);
void test_reduce(ctx *c);
void test_reduce_scatter(ctx *c);
void test_coalesced(ctx *c);

void test_broadcast(ctx *c);
void test_all_gather(ctx *c);
void test_all_gather_v(ctx *c);
void test_gather(ctx *c);
void test_scatter(ctx *c);
void test_all_to_all(ctx *c);
void test_all_to_all_v(ctx *c);

void test_barrier(ctx *c);
void test_monitored_barrier(ctx *c);
void test_messages(ctx *c);
void test_batch(ctx *c);
void test_groups(ctx *c);
void test_works(ctx *c);
void test_refusals(ctx *c);

#endif
