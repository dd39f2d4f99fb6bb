#include "comm/shared/arrival.h"

#include "comm/record/call_record.h"

#include <string.h>

void tt__publish(tt_work *work, const tt__offer *offer) {
    tt_group *group = work->group;
    uint32_t seq = ++group->native->seq;
    tt__slot *slot = tt__slot_of(group, group->rank, seq);
    uint64_t word = tt__signature(work) | seq;
    slot->record = work->record_number;
    if (offer->symmetric && tt__in_heap(group->native->world, offer->symmetric, offer->extent)) {
        word |= TT__SYMMETRIC_BIT;
        slot->offset = (uint64_t)((const unsigned char *)offer->symmetric - group->native->bases[group->rank]);
    }
    slot->factor = work->call.factor;
    if (offer->bytes)
        memcpy(tt__slot_payload(slot, offer->bytes), offer->payload, offer->bytes);
    work->seq = seq;
    work->word = (uint32_t)(word >> 32) & ~1U;
    tt__slot_publish(slot, word);
    group->native->wake_pending = true;
}

static uint64_t word_of(const tt_group *group, int r, uint32_t seq) { return tt__word_in(tt__slot_of(group, r, seq)); }

const void *tt__payload(const tt_group *group, int r, uint32_t seq, size_t bytes) {
    return tt__slot_payload(tt__slot_of(group, r, seq), bytes);
}

bool tt__is_symmetric(const tt_group *group, int r, uint32_t seq) { return word_of(group, r, seq) & TT__SYMMETRIC_BIT; }

void *tt__symmetric(const tt_group *group, int r, uint32_t seq) {
    return group->native->bases[r] + tt__slot_of(group, r, seq)->offset;
}

double tt__factor(const tt_group *group, int r, uint32_t seq) { return tt__slot_of(group, r, seq)->factor; }

bool tt__disagrees(const tt_group *group, uint32_t seq) {
    uint64_t mine = word_of(group, group->rank, seq);
    for (int r = 0; r < group->size; r++) {
        uint64_t word = word_of(group, r, seq);
        if ((uint32_t)word == seq && (word ^ mine) & ~TT__SYMMETRIC_BIT)
            return true;
    }
    return false;
}

bool tt__agree(tt_work *work) {
    tt_group *group = work->group;
    uint64_t mine = word_of(group, group->rank, work->seq), differ = 0, all = mine;
    for (int r = 0; r < group->size; r++) {
        uint64_t word = word_of(group, r, work->seq);
        differ |= word ^ mine;
        all &= word;
    }
    work->symmetric = all & TT__SYMMETRIC_BIT;
    return !(differ & ~TT__SYMMETRIC_BIT);
}

/* ---- how far the ranks are */

bool tt__ready_rank(const tt_group *group, const tt__wait *wait, int r) {
    const tt__area *area = group->native->areas[r];
    if (wait->what == TT__ARRIVAL)
        return (uint32_t)tt__word_in(&area->slots[wait->target & 1]) == wait->target;
    return tt__has_finished(area, wait->target);
}

bool tt__ready(const tt_group *group, tt__wait *wait) {
    while (wait->next < wait->end && tt__ready_rank(group, wait, wait->next))
        wait->next++;
    return wait->next == wait->end;
}

uint32_t tt__plan_steps(tt_group *group, uint32_t n) {
    uint32_t before = group->native->step;
    group->native->step += n;
    return before;
}

void tt__finish_step(tt_group *group, uint32_t step) {
    tt__area_finish(group->native->areas[group->rank], step);
    group->native->wake_pending = true;
}
