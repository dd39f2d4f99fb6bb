/* When calls ran on their devices: beside the recorder's records, which are full, and only of calls on a device. */
#include "comm/record/recorder.h"

uint32_t tt__record_device_check(const tt__record_device *ran) {
    uint64_t mixed = (uint64_t)ran->begin_ns ^ tt__rotated((uint64_t)ran->duration_ns, 31);
    mixed ^= ran->number * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)ran->type << 16 | ran->index);
    return (uint32_t)(mixed ^ mixed >> 32);
}

void tt__record_put_device(tt__recorder *recorder, const tt__record_device *ran) {
    tt__device_slot *slot = &recorder->devices[(ran->number - 1) % TT__RECORDS];
    TT__RECORD_SET(slot, number, 0);
    atomic_thread_fence(memory_order_release);
    TT__RECORD_SET(slot, device, (uint32_t)ran->type << 16 | ran->index);
    TT__RECORD_SET(slot, begin_ns, (uint64_t)ran->begin_ns);
    TT__RECORD_SET(slot, duration_ns, (uint64_t)ran->duration_ns);
    TT__RECORD_SET(slot, check, tt__record_device_check(ran));
    atomic_store_explicit(&slot->number, ran->number, memory_order_release);
}

void tt__record_note_device(tt__recorder *recorder, const tt__record_slot *slot, const tt__record_device *ran) {
    if (tt__record_is(slot, ran->number))
        tt__record_put_device(recorder, ran);
}

bool tt__record_read_device(const tt__recorder *recorder, uint32_t number, tt__record_device *copy) {
    const tt__device_slot *slot = &recorder->devices[(number - 1) % TT__RECORDS];
    uint32_t before = atomic_load_explicit(&slot->number, memory_order_acquire);
    uint32_t device = TT__RECORD_GET(slot, device);
    if (!number || before != number)
        return false;
    *copy = (tt__record_device){.number = number,
                                .type = (uint16_t)(device >> 16),
                                .index = (uint16_t)device,
                                .begin_ns = (int64_t)TT__RECORD_GET(slot, begin_ns),
                                .duration_ns = (int64_t)TT__RECORD_GET(slot, duration_ns)};
    uint32_t check = TT__RECORD_GET(slot, check);
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number && check == tt__record_device_check(copy) && copy->duration_ns >= 0 &&
           copy->begin_ns == tt__ns_checked(copy->begin_ns) && copy->duration_ns == tt__ns_checked(copy->duration_ns);
}
