/* Rounds, and what workers that don't survive tell the store. */
#include "sim/keeper.h"
#include "sim/network.h"
#include "sim/verdict.h"

#include <stdlib.h>

static sim_round *all_rounds;

int sim_keeper_succeeded(int attempt) {
    const sim_round *round = all_rounds;
    while (round && round->attempt != attempt)
        round = round->next;
    return round ? round->good : 0;
}

sim_round *sim_round_of(int generation, int attempt, int world) {
    sim_round *round = all_rounds;
    while (round && (round->attempt != attempt || round->generation != generation))
        round = round->next;
    if (!round) {
        round = sim_memory(calloc(1, sizeof *round));
        *round = (sim_round){all_rounds, generation, attempt, world, 0, 0, false};
        all_rounds = round;
    }
    return round;
}

void sim_worker_counts_itself(sim_conn *conn) {
    static const char key[] = "/arrived";
    tt__bytes out = {0};
    tt__store_put_u8(&out, 0);
    tt__store_put_u32(&out, TT__STORE_MAGIC);
    tt__store_put_u8(&out, (uint8_t)tt__store_op_table[TT__STORE_ADD].opcode[TT_STORE_TORCH_2]);
    tt__store_put_string(&out, (tt__span){(const uint8_t *)key, sizeof key - 1});
    tt__store_put_u64(&out, 1);
    sim_conn_send(conn, out.data, out.size);
    tt__bytes_free(&out);
}

void sim_worker_says_goodbye(sim_conn *conn) {
    static const char key[] = "/last", word[] = "words";
    tt__bytes out = {0};
    tt__store_put_u8(&out, (uint8_t)tt__store_op_table[TT__STORE_SET].opcode[TT_STORE_TORCH_2]);
    tt__store_put_string(&out, (tt__span){(const uint8_t *)key, sizeof key - 1});
    tt__store_put_string(&out, (tt__span){(const uint8_t *)word, sizeof word - 1});
    if (sim_conn_is_open(conn) && !sim_conn_is_broken(conn) && !sim_conn_is_ended(conn))
        sim_conn_send(conn, out.data, out.size);
    tt__bytes_free(&out);
    sim_conn_close(conn);
}
