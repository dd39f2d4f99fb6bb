/* The algorithms on messages. Each file opens with its terms, steps and bytes; docs/collectives.md compares them. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_MESSAGE_ALGORITHMS_H
#define TT_COMM_COLLECTIVE_MESSAGE_MESSAGE_ALGORITHMS_H

#include "comm/machine.h"

/* The most ranks that algorithms serve which send to all at once. */
enum { TT__DIRECT_RANKS = 64 };

extern const tt__algorithm tt__barrier_dissemination;
extern const tt__algorithm tt__all_reduce_direct, tt__all_reduce_slices, tt__all_reduce_halving_doubling,
    tt__all_reduce_ring, tt__all_reduce_coalesced_packed;
extern const tt__algorithm tt__reduce_direct, tt__reduce_slices, tt__reduce_binomial;
extern const tt__algorithm tt__reduce_scatter_direct, tt__reduce_scatter_halving;
extern const tt__algorithm tt__broadcast_direct, tt__broadcast_binomial, tt__broadcast_chain, tt__broadcast_scatter;
extern const tt__algorithm tt__all_gather_direct, tt__all_gather_ring, tt__all_gather_bruck, tt__all_gather_doubling;
extern const tt__algorithm tt__all_gather_neighbor_exchange, tt__all_gather_v_direct, tt__all_gather_v_ring;
extern const tt__algorithm tt__gather_direct, tt__gather_binomial, tt__scatter_direct, tt__scatter_binomial;
extern const tt__algorithm tt__all_to_all_direct, tt__all_to_all_pairwise, tt__all_to_all_bruck;
extern const tt__algorithm tt__all_to_all_v_direct, tt__all_to_all_v_pairwise;
extern const tt__algorithm tt__exchange_bruck, tt__monitored_barrier_messages;
extern const tt__algorithm tt__send_message, tt__recv_message, tt__batch_messages;

#endif
