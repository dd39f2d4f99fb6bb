/* Memory for received packets: small ones are used again. The lock is held. */
#ifndef TT_RPC_PACKETS_MEMORY_H
#define TT_RPC_PACKETS_MEMORY_H

#include "rpc/rpc_state.h"

#include <stdlib.h>
#include <unistd.h>

enum { TT__RPC_SMALL_PACKET = 1024, TT__RPC_PACKETS_KEPT = 128 };

/* Return the bytes of this machine's memory: no value may claim more. */
static inline size_t tt__rpc_machine_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : (size_t)4 << 30;
}

/* Return a packet of `size` bytes; NULL: no memory. */
static inline tt__rpc_packet *tt__packet_new(tt_rpc *rpc, size_t size) {
    tt__rpc_packet *packet = rpc->free_packets;
    if (size <= TT__RPC_SMALL_PACKET && packet) {
        rpc->free_packets = packet->next;
        rpc->free_packet_count--;
    } else {
        size_t room = size < TT__RPC_SMALL_PACKET ? TT__RPC_SMALL_PACKET : size;
        packet = malloc(sizeof *packet + room);
        if (packet)
            packet->room = room;
    }
    if (packet)
        packet->size = size;
    return packet;
}

static inline void tt__packet_free(tt_rpc *rpc, tt__rpc_packet *packet) {
    if (packet && packet == rpc->reserve) {
        rpc->reserve_used = false;
        return;
    }
    if (packet && packet->room == TT__RPC_SMALL_PACKET && rpc->free_packet_count < TT__RPC_PACKETS_KEPT) {
        packet->next = rpc->free_packets;
        rpc->free_packets = packet;
        rpc->free_packet_count++;
        return;
    }
    free(packet);
}

#endif
