/* The algorithms on messages. Each file opens with its terms, steps and bytes; docs/collectives.md compares them. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_ALGORITHMS_H
#define TT_COMM_COLLECTIVE_MESSAGE_ALGORITHMS_H

#include "comm/work.h"

/* Algorithms that send to all ranks at once serve at most so many. */
enum { TT__DIRECT_RANKS = 64 };

extern const tt__algorithm tt__barrier_dissemination, tt__barrier_hierarchical;
extern const tt__algorithm tt__all_reduce_direct, tt__all_reduce_slices, tt__all_reduce_halving_doubling,
    tt__all_reduce_ring, tt__all_reduce_hierarchical, tt__all_reduce_coalesced_packed;
extern const tt__algorithm tt__reduce_direct, tt__reduce_slices, tt__reduce_binomial, tt__reduce_hierarchical;
extern const tt__algorithm tt__reduce_scatter_direct, tt__reduce_scatter_halving, tt__reduce_scatter_hierarchical;
extern const tt__algorithm tt__broadcast_direct, tt__broadcast_binomial, tt__broadcast_chain, tt__broadcast_scatter,
    tt__broadcast_hierarchical;
extern const tt__algorithm tt__all_gather_direct, tt__all_gather_ring, tt__all_gather_bruck, tt__all_gather_doubling,
    tt__all_gather_hierarchical;
extern const tt__algorithm tt__all_gather_v_direct, tt__all_gather_v_ring, tt__all_gather_v_hierarchical;
extern const tt__algorithm tt__gather_direct, tt__gather_binomial, tt__gather_hierarchical, tt__scatter_direct,
    tt__scatter_binomial, tt__scatter_hierarchical;
extern const tt__algorithm tt__all_to_all_direct, tt__all_to_all_pairwise, tt__all_to_all_bruck,
    tt__all_to_all_hierarchical;
extern const tt__algorithm tt__all_to_all_v_direct, tt__all_to_all_v_pairwise;

#endif
