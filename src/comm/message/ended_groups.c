#include "comm/message/ended_groups.h"

#include "comm/message/arrivals.h"
#include "comm/message/outgoing.h"

static uint32_t group_slot(uint32_t group) {
    return (group * UINT32_C(0x9e3779b1)) / (UINT32_MAX / TT__ENDED_GROUPS + 1);
}

bool tt__messages_have_ended(const tt__messages *messages, uint32_t group) {
    return messages->ended_groups[group_slot(group)] == group + 1;
}

void tt__messages_expect(tt__messages *messages, uint32_t group) {
    if (tt__messages_have_ended(messages, group))
        messages->ended_groups[group_slot(group)] = 0;
}

static void drop_arrivals(tt__link *link, uint32_t group) {
    for (tt__arrival **at = &link->arrivals; *at;) {
        const tt__arrival *arrival = *at;
        uint64_t bytes = arrival->bytes;
        bool eager = !arrival->id;
        if (arrival->key.group != group) {
            at = &(*at)->next;
            continue;
        }
        tt__arrival_drop(link, at);
        if (eager)
            tt__give_credit(link, bytes);
    }
}

static void drop_readies(tt__link *link, uint32_t group) {
    for (tt__readiness **at = &link->readies; *at;)
        if ((*at)->key.group == group)
            tt__ready_drop(link, at);
        else
            at = &(*at)->next;
}

void tt__messages_forget(tt__messages *messages, uint32_t group) {
    messages->ended_groups[group_slot(group)] = group + 1;
    for (int r = 0; r < messages->config.size; r++) {
        if (!messages->links[r])
            continue;
        drop_arrivals(messages->links[r], group);
        drop_readies(messages->links[r], group);
    }
}
