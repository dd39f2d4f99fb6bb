#include "comm/shared/arrival.h"

#include "comm/record/call_record.h"

void tt__publish(tt_work *work, const tt__offer *offer) {
    tt_group *group = work->group;
    tt__slot *slot = tt__slot_of(group, group->rank, group->native->seq + 1);
    bool symmetric = offer->symmetric && tt__in_heap(group->native->world, offer->symmetric, offer->extent);
    slot->record = work->record_number;
    slot->factor = work->call.factor;
    uint64_t word =
        tt__arrive(group, tt__signature(work), offer->payload, offer->bytes, symmetric ? offer->symmetric : NULL);
    work->seq = (uint32_t)word;
    work->word = tt__word_signature(word);
    group->native->wake_pending = true;
}

bool tt__agree(tt_work *work) {
    const tt_group *group = work->group;
    uint64_t mine = tt__word_of(group, group->rank, work->seq), differ = tt__words_differ(group, mine);
    work->symmetric = mine & ~differ & TT__SYMMETRIC_BIT;
    return !(differ & ~TT__SYMMETRIC_BIT);
}

bool tt__disagrees(const tt_group *group, uint32_t seq) {
    uint64_t mine = tt__word_of(group, group->rank, seq);
    for (int r = 0; r < group->size; r++) {
        uint64_t word = tt__word_of(group, r, seq);
        if ((uint32_t)word == seq && (word ^ mine) & ~TT__SYMMETRIC_BIT)
            return true;
    }
    return false;
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
