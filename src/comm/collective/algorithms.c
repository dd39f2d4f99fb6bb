#include "comm/collective/algorithms.h"

#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"
#include "comm/collective/shared/shared_algorithms.h"

const tt__algorithm *const tt__algorithms[] = {
    &tt__all_reduce_inline,
    &tt__all_reduce_carried,
    &tt__all_reduce_symmetric,
    &tt__all_reduce_staged,
    &tt__reduce_inline,
    &tt__reduce_symmetric,
    &tt__reduce_staged,
    &tt__coalesced_inline,
    &tt__coalesced_symmetric,
    &tt__coalesced_staged,
    &tt__reduce_scatter_blocks,
    &tt__broadcast_blocks,
    &tt__gather_blocks,
    &tt__scatter_blocks,
    &tt__all_gather_blocks,
    &tt__all_gather_v_blocks,
    &tt__all_to_all_blocks,
    &tt__all_to_all_v_blocks,
    &tt__barrier_words,
    &tt__exchange_words,
    &tt__exchange_bruck,
    &tt__monitored_barrier_messages,
    /* On messages: of each op the plainest first. */
    &tt__barrier_dissemination,
    &tt__barrier_hierarchical,
    &tt__all_reduce_direct,
    &tt__all_reduce_slices,
    &tt__all_reduce_halving_doubling,
    &tt__all_reduce_ring,
    &tt__all_reduce_hierarchical,
    &tt__reduce_direct,
    &tt__reduce_slices,
    &tt__reduce_binomial,
    &tt__reduce_hierarchical,
    &tt__reduce_scatter_direct,
    &tt__reduce_scatter_halving,
    &tt__reduce_scatter_hierarchical,
    &tt__broadcast_direct,
    &tt__broadcast_binomial,
    &tt__broadcast_chain,
    &tt__broadcast_scatter,
    &tt__broadcast_hierarchical,
    &tt__all_gather_direct,
    &tt__all_gather_ring,
    &tt__all_gather_bruck,
    &tt__all_gather_doubling,
    &tt__all_gather_neighbor_exchange,
    &tt__all_gather_hierarchical,
    &tt__all_gather_v_direct,
    &tt__all_gather_v_ring,
    &tt__all_gather_v_hierarchical,
    &tt__gather_direct,
    &tt__gather_binomial,
    &tt__gather_hierarchical,
    &tt__scatter_direct,
    &tt__scatter_binomial,
    &tt__scatter_hierarchical,
    &tt__all_to_all_direct,
    &tt__all_to_all_pairwise,
    &tt__all_to_all_bruck,
    &tt__all_to_all_hierarchical,
    &tt__all_to_all_v_direct,
    &tt__all_to_all_v_pairwise,
    &tt__all_reduce_coalesced_packed,
    &tt__send_message,
    &tt__recv_message,
    &tt__batch_messages,
};
const size_t tt__algorithm_count = sizeof tt__algorithms / sizeof *tt__algorithms;

uint8_t tt__algorithm_number(const tt__algorithm *algorithm) {
    for (size_t i = 0; i < tt__algorithm_count; i++)
        if (tt__algorithms[i] == algorithm)
            return (uint8_t)(i + 1);
    return 0;
}

const char *tt__algorithm_name(uint8_t number) {
    return number && number <= tt__algorithm_count ? tt__algorithms[number - 1]->name : "?";
}
