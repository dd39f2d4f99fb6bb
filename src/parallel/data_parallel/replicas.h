/* A module run by several threads, each on a part of the batch. */
#ifndef TT_PARALLEL_DATA_PARALLEL_REPLICAS_H
#define TT_PARALLEL_DATA_PARALLEL_REPLICAS_H

#include "autograd/pointer_map.h"

#include <tutti/nn.h>
#include <tutti/tensor.h>

/* ---- module_copies.c ---- */

typedef struct tt__given tt__given;

typedef struct tt__module_copies {
    int count;
    tt_module **modules; /* (count): the wrapped one, borrowed, then the copies, owned */
    tt__given *given;    /* (parameters): the values that the copies have */
} tt__module_copies;

/* Take count - 1 copies of `first`, and own them, also after a failure. NULL: TT_ERR_INVALID a copy is NULL, has a
 * parent or isn't like `first`; TT_ERR_MEMORY. */
tt__module_copies *tt__copies_new(tt_module *first, tt_module *const *copies, int64_t count);
void tt__copies_free(tt__module_copies *copies); /* NULL is allowed */

/* Give all copies the first module's parameters, buffers, modes and frozen state. */
tt_status tt__copies_give(const tt__module_copies *copies);

/* The device of copy r; NULL: it has no parameters. Take a list of references to its parameters, in the first module's
 * order; drop it. */
const tt_device *tt__copies_device(const tt__module_copies *copies, int r);
tt_status tt__copies_take_leaves(const tt__module_copies *copies, int r, tt_tensor ***leaves);
void tt__copies_drop_leaves(tt_tensor **leaves, int64_t count);

/* The inputs of a call of replicas, parameters and leaves included. Empty if zeroed; tt__pool_free(tensors) and
 * tt__pointer_map_free(&at) end it. */
typedef struct tt__replica_slots {
    tt_tensor **tensors; /* borrowed */
    int64_t count, room;
    tt__pointer_map at; /* slots after the inputs, by tensor */
} tt__replica_slots;

tt_status tt__replica_slot_add(tt__replica_slots *slots, tt_tensor *x, bool is_input);

/* ---- replica_crew.c: threads that run the replicas ---- */

typedef struct tt__replica_crew tt__replica_crew;

/* Make a crew of `threads`, the caller of tt__replica_crew_run() included, with one reference. NULL, with an error: no
 * memory, or no more threads. */
tt__replica_crew *tt__replica_crew_new(int threads);
tt__replica_crew *tt__replica_crew_ref(tt__replica_crew *crew);
void tt__replica_crew_unref(tt__replica_crew *crew);

/* Run task(user, i) for i in 0..n-1, each in thread i as replica i of n, with a share of the threads that operators may
 * use; returns when all are done. One thread at a time calls it. In a forked child, which has no other threads, the
 * caller runs the tasks one after the other. */
void tt__replica_crew_run(tt__replica_crew *crew, int n, void (*task)(void *user, int i), void *user);

/* Have thread i free a scope that it made, before its next task; NULL is allowed. */
void tt__crew_end_scope(tt__replica_crew *crew, int i, tt_scope *scope);

/* ---- replicas.c ---- */

/* Cut dimension 0, of n elements, for at most `replicas`, as torch.chunk does: into parts of *rows, the last perhaps
 * smaller. Returns the number of parts, at least 1. */
int64_t tt__chunk_count(int64_t n, int64_t replicas, int64_t *rows);

/* Run `module` on `in`, cut in dimension 0, in at most `replicas` threads of the crew, and put the results together:
 * recorded as one call of the inputs and the module's parameters. `copies` not NULL: replica r runs copies->modules[r],
 * on its device. */
tt_status tt__replicas_forward(tt__replica_crew *crew, int replicas, tt_module *module, const tt__module_copies *copies,
                               tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count);

#endif
