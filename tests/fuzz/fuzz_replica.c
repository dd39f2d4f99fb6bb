/* What a replica of a store takes from others: who they are, what they all hold, and libraft's messages, for a libraft
 * that follows, asks for votes or leads. Whatever comes, libraft goes on, and so does the state machine; what it says
 * itself can be read.
 *
 * Input: a mode byte, then
 *   0: bytes of everything that is read
 *   else: things that happen to replica 1 of three, which began with the others (odd mode) or is taken in: a byte says
 *   what (happening), and of a message two bytes how long it is. */
#include "store/replica_place.h"
#include "store/replica_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good) {
    if (!good)
        abort();
}

static void open_state(tt__replica_state *state, tt__store_service *service) {
    tt__store_service_init(service);
    tt__replica_state_init(state, service);
}

static void close_state(tt__replica_state *state) {
    tt__replica_state_free(state);
    tt__store_service_free(state->service);
}

/* What passes is taken over, and written down again. */
static void read_state(tt__span bytes) {
    tt__store_service service;
    tt__replica_state state;
    tt__bytes saved = {0}, answer = {0};
    open_state(&state, &service);
    bool good = tt__replica_saved_good(bytes);
    must(tt__replica_restore(&state, bytes) == good);
    must(tt__replica_save(&state, &saved));
    must(tt__replica_saved_good((tt__span){saved.data, saved.size}));
    if (tt__replica_entry_good(bytes)) {
        must(tt__replica_apply(&state, bytes, &answer));
        must(answer.size >= 9 && tt__store_number(answer.data + 1, 8) == answer.size - 9);
    }
    tt__bytes_free(&saved);
    tt__bytes_free(&answer);
    close_state(&state);
}

/* A list is in agreement with itself, and not with another order. */
static void read_list(tt__replica_place *place) {
    char text[TT__REPLICA_LIST_SIZE];
    must(place->n == 3 || place->n == 5);
    tt__replica_place_text(place, text);
    const tt__span list = {(const uint8_t *)text, strlen(text)};
    tt__replica_place again;
    must(!tt__replica_place_read(&again, "fuzz", text, 0));
    must(tt__replica_place_agrees(place, list));
    again.at[0] = place->at[1];
    again.at[1] = place->at[0];
    must(!tt__replica_place_agrees(&again, list));
}

static void read_words(tt__span bytes) {
    tt__replica_hello hello;
    tt__replica_place place;
    if (tt__replica_take_hello(bytes, &hello)) {
        tt__bytes again = {0};
        tt__replica_put_hello(&again, &hello);
        must(again.size == bytes.size && !memcmp(again.data, bytes.data, bytes.size));
        tt__bytes_free(&again);
        for (int i = 0; i < 3; i++)
            snprintf(place.at[i].host, sizeof place.at[i].host, "%c", 'a' + i), place.at[i].port = i + 1;
        place.n = 3;
        (void)tt__replica_place_agrees(&place, hello.list);
    }
    char *text = malloc(bytes.size + 1);
    must(text != NULL);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    if (!tt__replica_place_read(&place, "fuzz", text, 29400))
        read_list(&place);
    free(text);
}

#ifdef TT__RAFT
#include "store/replica_check.h"
#include "store/replica_code.h"
#include "store/replica_io.h"

enum { MEMBERS = 3, STRANGER = 77 };

/* What happens: a message of a member's, or of one who is new in its place; time passes; what one who leads does. */
typedef enum happening { MESSAGE_2, MESSAGE_3, MESSAGE_NEW, TICK, SETTLE, WRITE, READ, CHANGE, HAPPENINGS } happening;

typedef struct one {
    const tt__raft *lib;
    uv_loop_t loop;
    tt__replica_io io;
    struct raft raft;
    struct raft_fsm fsm;
    tt__store_service service;
    tt__replica_state state;
    tt__bytes answer;
    raft_time now;
    struct raft_barrier barrier;
    struct raft_change change;
    bool reads, changes;
} one;

static one only;

static int fuzz_apply(struct raft_fsm *fsm, const struct raft_buffer *buffer, void **result) {
    one *o = fsm->data;
    tt__bytes_clear(&o->answer, 0);
    must(tt__replica_apply(&o->state, (tt__span){buffer->base, buffer->len}, &o->answer));
    *result = &o->answer;
    return 0;
}

static int fuzz_snapshot(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *n) {
    one *o = fsm->data;
    tt__bytes saved = {0};
    must(tt__replica_save(&o->state, &saved));
    *buffers = o->lib->raft_malloc(sizeof **buffers);
    **buffers = (struct raft_buffer){o->lib->raft_malloc(saved.size), saved.size};
    memcpy((*buffers)->base, saved.data, saved.size);
    *n = 1;
    tt__bytes_free(&saved);
    return 0;
}

static int fuzz_restore(struct raft_fsm *fsm, struct raft_buffer *buffer) {
    one *o = fsm->data;
    must(tt__replica_restore(&o->state, (tt__span){buffer->base, buffer->len}));
    o->lib->raft_free(buffer->base);
    return 0;
}

static raft_time fuzz_time(struct raft_io *io) {
    (void)io;
    return only.now;
}

static int fuzz_random(struct raft_io *io, int min, int max) {
    (void)io, (void)max;
    return min;
}

/* What this one says is what others can read. */
static bool fuzz_send(void *user, const struct raft_message *message) {
    one *o = user;
    tt__bytes bytes = {0};
    struct raft_message again;
    tt__replica_put_message(&bytes, message);
    must(tt__replica_take_message(o->lib, (tt__span){bytes.data, bytes.size}, &again));
    tt__replica_free_message(o->lib, &again);
    tt__bytes_free(&bytes);
    return message->server_id != STRANGER;
}

static void fuzz_moved(void *user) { (void)user; }
static void fuzz_closed(struct raft *raft) { (void)raft; }

static void begin_one(one *o, bool founder) {
    struct raft_configuration all;
    char address[TT__REPLICA_ADDRESS_SIZE];
    if (!o->io.raft) {
        must(!uv_loop_init(&o->loop));
        tt__replica_io_init(&o->io, o->lib, &o->loop);
        o->io.send = fuzz_send;
        o->io.moved = fuzz_moved;
        o->io.user = o;
        o->io.io.time = fuzz_time;
        o->io.io.random = fuzz_random;
    }
    o->now = 1000;
    o->reads = o->changes = false;
    o->raft = (struct raft){0};
    o->fsm = (struct raft_fsm){
        .version = 1, .data = o, .apply = fuzz_apply, .snapshot = fuzz_snapshot, .restore = fuzz_restore};
    open_state(&o->state, &o->service);
    tt__replica_address(0, 1, address);
    must(!o->lib->raft_init(&o->raft, &o->io.io, &o->fsm, 1, address));
    o->lib->raft_set_pre_vote(&o->raft, true);
    o->lib->raft_set_snapshot_threshold(&o->raft, 4);
    o->lib->raft_set_snapshot_trailing(&o->raft, 2);
    if (founder) {
        o->lib->raft_configuration_init(&all);
        for (int i = 0; i < MEMBERS; i++) {
            tt__replica_address(i, (uint64_t)i + 1, address);
            must(!o->lib->raft_configuration_add(&all, (uint64_t)i + 1, address, RAFT_VOTER));
        }
        must(!o->lib->raft_bootstrap(&o->raft, &all));
        o->lib->raft_configuration_close(&all);
    }
    must(!o->lib->raft_start(&o->raft));
}

static void end_one(one *o) {
    tt__replica_io_settle(&o->io);
    o->lib->raft_close(&o->raft, fuzz_closed);
    tt__replica_io_free(&o->io);
    tt__bytes_free(&o->answer);
    close_state(&o->state);
}

/* As replica.c takes it; false: it is to start over. */
static bool hear(one *o, happening from, tt__span bytes) {
    struct raft_message message;
    char why[TT__REPLICA_WHY_SIZE] = "", address[TT__REPLICA_ADDRESS_SIZE];
    raft_id id = from == MESSAGE_NEW ? STRANGER : from == MESSAGE_2 ? 2 : 3;
    tt__replica_io_settle(&o->io);
    if (!tt__replica_take_message(o->lib, bytes, &message))
        return true;
    tt__replica_verdict verdict = tt__replica_check(&o->raft, MEMBERS, id, &message, why);
    must((verdict == TT__REPLICA_LIE) == (*why != '\0'));
    if (verdict) {
        tt__replica_free_message(o->lib, &message);
        return verdict == TT__REPLICA_LIE;
    }
    tt__replica_address(from == MESSAGE_3 ? 2 : 1, id, address);
    message.server_id = id;
    message.server_address = address;
    tt__replica_io_receive(&o->io, &message);
    return true;
}

static void on_written(struct raft_apply *apply, int status, void *result) {
    (void)status, (void)result;
    free(apply);
}

static void on_read(struct raft_barrier *barrier, int status) {
    (void)status;
    ((one *)barrier->data)->reads = false;
}

static void on_change(struct raft_change *change, int status) {
    (void)status;
    ((one *)change->data)->changes = false;
}

static void write_one(one *o) {
    tt__bytes entry = {0}, request = {0};
    tt__store_put_u8(&request, (uint8_t)tt__store_op_table[TT__STORE_ADD].opcode[TT_STORE_TORCH_2]);
    tt__store_put_string(&request, (tt__span){(const uint8_t *)"/n", 2});
    tt__store_put_u64(&request, 1);
    tt__replica_put_entry(&entry, 5, o->now, (tt__span){request.data, request.size});
    struct raft_buffer buffer = {o->lib->raft_malloc(entry.size), entry.size};
    struct raft_apply *apply = calloc(1, sizeof *apply);
    memcpy(buffer.base, entry.data, entry.size);
    if (o->lib->raft_apply(&o->raft, apply, &buffer, 1, on_written)) {
        o->lib->raft_free(buffer.base);
        free(apply);
    }
    tt__bytes_free(&entry);
    tt__bytes_free(&request);
}

/* Take the newcomer in for the second member, a step at a time. */
static void change_one(one *o) {
    char address[TT__REPLICA_ADDRESS_SIZE];
    bool second = false, newcomer = false;
    if (o->changes)
        return;
    for (unsigned i = 0; i < o->raft.configuration.n; i++) {
        second = second || o->raft.configuration.servers[i].id == 2;
        newcomer = newcomer || o->raft.configuration.servers[i].id == STRANGER;
    }
    tt__replica_address(1, STRANGER, address);
    o->change.data = o;
    o->changes = true;
    int failed = second      ? o->lib->raft_remove(&o->raft, &o->change, 2, on_change)
                 : !newcomer ? o->lib->raft_add(&o->raft, &o->change, STRANGER, address, on_change)
                             : o->lib->raft_assign(&o->raft, &o->change, STRANGER, RAFT_VOTER, on_change);
    o->changes = o->changes && !failed;
}

static void lead(one *o, happening what) {
    if (o->lib->raft_state(&o->raft) != RAFT_LEADER)
        return;
    if (what == WRITE)
        write_one(o);
    if (what == CHANGE)
        change_one(o);
    if (what != READ || o->reads)
        return;
    o->barrier.data = o;
    o->reads = true;
    if (o->lib->raft_barrier(&o->raft, &o->barrier, on_read))
        o->reads = false;
}

static void look(const one *o) {
    must(o->lib->raft_state((struct raft *)&o->raft) != RAFT_UNAVAILABLE);
    must(o->raft.last_applied <= o->raft.commit_index);
    must(o->raft.log.offset <= o->raft.log.snapshot.last_index);
}

static void happen(tt__span bytes, bool founder) {
    one *o = &only;
    o->lib = tt__raft_get();
    if (!o->lib)
        return;
    begin_one(o, founder);
    tt__replica_reader reader = {.rest = bytes};
    while (reader.rest.size) {
        happening what = (happening)(tt__replica_take(&reader, 1) % HAPPENINGS);
        if (what <= MESSAGE_NEW) {
            size_t size = (size_t)tt__replica_take(&reader, 2);
            size = size < reader.rest.size ? size : reader.rest.size;
            if (!hear(o, what, (tt__span){reader.rest.data, size}))
                break;
            reader.rest = (tt__span){reader.rest.data + size, reader.rest.size - size};
        } else if (what == TICK) {
            o->now += 60;
            tt__replica_io_settle(&o->io);
            o->io.ticked(&o->io.io);
        } else if (what == SETTLE) {
            o->now += 900;
            tt__replica_io_settle(&o->io);
        } else {
            lead(o, what);
        }
        look(o);
    }
    end_one(o);
}
#else
static void happen(tt__span bytes, bool founder) { (void)bytes, (void)founder; }
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    tt__span bytes = {data + 1, size - 1};
    if (*data) {
        happen(bytes, *data % 2);
    } else {
        read_state(bytes);
        read_words(bytes);
    }
    return 0;
}
