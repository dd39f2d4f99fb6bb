#include "elastic/job_rounds.h"

#include "base/error.h"
#include "comm/record/recovery.h"
#include "elastic/elastic.h"
#include "net/net.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tt__job_rounds {
    int round, rank, world;
    tt__standing_record standing;
};

static tt_status rounds_open(tt__job_rounds *rounds) {
    tt__recovery_say((tt__recovery){.recovers = 1});
    TT__TRY(tt__round_check());
    return tt__standing_record_open(&rounds->standing, rounds->rank, rounds->world);
}

tt_status tt__job_rounds_begin(tt__job_rounds **out, int rank, int world, int *round) {
    *out = NULL;
    *round = tt__round_number();
    if (!tt__standing_record_claim())
        return tt__fail(TT_ERR_STATE, "rounds: this process has rounds already: end those first");
    tt__job_rounds *rounds = malloc(sizeof *rounds);
    if (!rounds) {
        tt__standing_record_release();
        return tt__fail(TT_ERR_MEMORY, "rounds: out of memory");
    }
    *rounds = (tt__job_rounds){*round, rank, world, .standing = {.memory = -1, .socket = -1}};
    tt_status status = rounds_open(rounds);
    if (status || rounds->standing.socket < 0)
        tt__job_rounds_end(rounds);
    else
        *out = rounds;
    return status;
}

tt_status tt__job_rounds_next(tt__job_rounds *rounds, int64_t wait_ms, tt__job_place *place) {
    const tt__stop_wish none = {0};
    tt__round_news news;
    tt__recovery_say(
        (tt__recovery){.recovers = 1, .wants_round = (uint32_t)rounds->round + 1, .lost = tt__elastic_blamed_rank()});
    TT__TRY(tt__round_await(rounds->standing.socket, &news, rounds->round, wait_ms, &none));
    rounds->round = news.seat.round;
    if (news.seat.rank < 0)
        return tt__fail(TT_ERR_PEER, "the job goes on without this process, which was rank %d of %d: %s", rounds->rank,
                        rounds->world, *news.reason ? news.reason : "the launcher gives no reason");
    rounds->rank = news.seat.rank;
    rounds->world = news.seat.world;
    tt__standing_record_show(&rounds->standing, rounds->rank, rounds->world);
    tt__round_move(&news.seat);
    *place =
        (tt__job_place){.round = rounds->round, .rank = rounds->rank, .world = rounds->world, .port = news.seat.port};
    snprintf(place->host, sizeof place->host, "%s", news.seat.host);
    snprintf(place->reason, sizeof place->reason, "%s", news.reason);
    return TT_OK;
}

bool tt__job_rounds_wanted(tt__job_rounds *rounds) { return tt__round_wanted(rounds->standing.socket, rounds->round); }

void tt__job_rounds_joining(const tt__job_rounds *rounds) {
    tt__net_interrupt_by(rounds->standing.socket, "the launcher has another round for this job, or has ended");
}

void tt__job_rounds_joined(tt__job_rounds *rounds, bool well) {
    tt__net_interrupt_by(-1, NULL);
    if (well)
        tt__recovery_say((tt__recovery){.recovers = 1});
    else
        tt__standing_record_show(&rounds->standing, rounds->rank, rounds->world);
}

bool tt__job_rounds_in_vain(const tt__job_rounds *rounds) {
    struct pollfd one = {.fd = rounds->standing.socket, .events = POLLIN};
    return rounds->standing.socket >= 0 && poll(&one, 1, 0) > 0;
}

void tt__job_rounds_end(tt__job_rounds *rounds) {
    if (!rounds)
        return;
    tt__recovery_say((tt__recovery){0});
    tt__standing_record_close(&rounds->standing);
    free(rounds);
    tt__standing_record_release();
}
