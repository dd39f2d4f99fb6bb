/* Packets of workers (rpc/values/rpc_wire.h), written by hand, right ones and wrong ones. */
#ifndef TESTS_SUPPORT_RPC_PACKET_H
#define TESTS_SUPPORT_RPC_PACKET_H

#include "rpc/values/rpc_wire.h"

#include <string.h>

typedef struct packet {
    size_t size;
    _Alignas(16) uint8_t data[TT__PACKET_MAX];
} packet;

static inline tt__rpc_header *header_of(packet *p) { return (tt__rpc_header *)(void *)p->data; }

static inline void put(packet *p, const void *data, size_t bytes) {
    memcpy(p->data + p->size, data, bytes);
    p->size += bytes;
}

static inline void begin_packet(packet *p, tt__rpc_header header, const char *name) {
    header.name_bytes = (uint16_t)strlen(name);
    p->size = 0;
    put(p, &header, sizeof header);
    put(p, name, strlen(name));
}

static inline void put_ref(packet *p, int owner, int creator, uint64_t serial) {
    tt__rpc_ref ref = {.owner = (uint32_t)owner, .creator = (uint32_t)creator, .serial = serial};
    put(p, &ref, sizeof ref);
    header_of(p)->refs++;
}

#endif
