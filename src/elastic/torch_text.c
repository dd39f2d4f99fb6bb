/* The state as text in the store: how it is written, and what is around the pickle that torch_pickle.c reads. */
#include "elastic/torch_state.h"

#include "base/error.h"

#include <string.h>
#include <time.h>

/* ---- writing. Protocol 4; every class is in the memo once it is written. */

enum { CLASS_STATE, CLASS_NODE, CLASS_DATETIME, ZONE_UTC, MEMO_SIZE };

typedef struct writer {
    tt__bytes out;
    int memo[MEMO_SIZE], memos; /* memo[what]: 1 + its number; 0: not written yet */
    bool naive;
} writer;

static void write_op(writer *w, char op) { tt__bytes_put(&w->out, &op, 1); }

static void write_text(writer *w, const char *text) {
    uint32_t size = (uint32_t)strlen(text);
    write_op(w, 'X');
    tt__bytes_put(&w->out, &size, sizeof size); /* little-endian, as every machine that this runs on */
    tt__bytes_put(&w->out, text, size);
}

/* As LONG1: a number of bytes, and those. */
static void write_int(writer *w, int64_t number) {
    if (number >= 0 && number < 256) {
        const char op[] = {'K', (char)number};
        tt__bytes_put(&w->out, op, sizeof op);
        return;
    }
    const char op[] = {(char)0x8a, sizeof number};
    tt__bytes_put(&w->out, op, sizeof op);
    tt__bytes_put(&w->out, &number, sizeof number);
}

static void write_bool(writer *w, bool value) { write_op(w, (char)(value ? 0x88 : 0x89)); }

/* Write what is in the memo; false: it is not, and is to be written and then remembered. */
static bool write_remembered(writer *w, int what) {
    if (!w->memo[what])
        return false;
    const char op[] = {'h', (char)(w->memo[what] - 1)};
    tt__bytes_put(&w->out, op, sizeof op);
    return true;
}

static void remember(writer *w, int what) {
    w->memo[what] = ++w->memos;
    write_op(w, (char)0x94);
}

static void write_class(writer *w, int what, const char *module, const char *name) {
    if (what >= 0 && write_remembered(w, what))
        return;
    write_text(w, module);
    write_text(w, name);
    write_op(w, (char)0x93);
    if (what >= 0)
        remember(w, what);
}

static void write_zone(writer *w) {
    if (write_remembered(w, ZONE_UTC))
        return;
    write_class(w, -1, "datetime", "timezone");
    write_class(w, -1, "datetime", "timedelta");
    for (int i = 0; i < 3; i++)
        write_int(w, 0);
    write_op(w, (char)0x87);
    write_op(w, 'R');
    write_op(w, (char)0x85);
    write_op(w, 'R');
    remember(w, ZONE_UTC);
}

static void write_time(writer *w, int64_t us) {
    time_t seconds = (time_t)(us / 1000000);
    int32_t rest = (int32_t)(us % 1000000);
    struct tm t;
    gmtime_r(&seconds, &t);
    int year = t.tm_year + 1900;
    write_class(w, CLASS_DATETIME, "datetime", "datetime");
    const uint8_t bytes[] = {'C',
                             10,
                             (uint8_t)(year >> 8),
                             (uint8_t)year,
                             (uint8_t)(t.tm_mon + 1),
                             (uint8_t)t.tm_mday,
                             (uint8_t)t.tm_hour,
                             (uint8_t)t.tm_min,
                             (uint8_t)t.tm_sec,
                             (uint8_t)(rest >> 16),
                             (uint8_t)(rest >> 8),
                             (uint8_t)rest};
    tt__bytes_put(&w->out, bytes, sizeof bytes);
    if (!w->naive)
        write_zone(w);
    write_op(w, (char)(w->naive ? 0x85 : 0x86));
    write_op(w, 'R');
}

static void begin_object(writer *w, int what, const char *name) {
    write_class(w, what, "torch.distributed.elastic.rendezvous.dynamic_rendezvous", name);
    write_op(w, ')');
    write_op(w, (char)0x81);
    write_op(w, '}');
    write_op(w, '(');
}

static void end_object(writer *w) {
    write_op(w, 'u');
    write_op(w, 'b');
}

static void write_node(writer *w, const tt__torch_node *node) {
    begin_object(w, CLASS_NODE, "_NodeDesc");
    write_text(w, "addr");
    write_text(w, node->address);
    write_text(w, "fqdn");
    write_text(w, node->address);
    write_text(w, "pid");
    write_int(w, node->pid);
    write_text(w, "local_id");
    write_int(w, node->local_id);
    end_object(w);
}

static void write_nodes(writer *w, const char *name, const tt__torch_state *state, bool redundant) {
    write_text(w, name);
    write_op(w, (char)0x8f);
    write_op(w, '(');
    for (size_t i = 0; i < state->count; i++)
        if (redundant ? state->members[i].redundant : state->members[i].waiting)
            write_node(w, &state->members[i].node);
    write_op(w, (char)0x90);
}

static void write_participants(writer *w, const tt__torch_state *state) {
    write_text(w, "participants");
    write_op(w, '}');
    write_op(w, '(');
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].participant) {
            write_node(w, &state->members[i].node);
            write_int(w, state->members[i].rank);
        }
    write_op(w, 'u');
}

static void write_heartbeats(writer *w, const tt__torch_state *state) {
    write_text(w, "last_heartbeats");
    write_op(w, '}');
    write_op(w, '(');
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].beats) {
            write_node(w, &state->members[i].node);
            write_time(w, state->members[i].beat_us);
        }
    write_op(w, 'u');
}

tt_status tt__torch_encode(const tt__torch_state *state, tt__bytes *text) {
    writer w = {.naive = state->times == TT__TORCH_NAIVE};
    const char protocol[] = {(char)0x80, 4};
    tt__bytes_put(&w.out, protocol, sizeof protocol);
    begin_object(&w, CLASS_STATE, "_RendezvousState");
    write_text(&w, "round");
    write_int(&w, state->round);
    write_text(&w, "complete");
    write_bool(&w, state->complete);
    write_text(&w, "deadline");
    if (state->has_deadline)
        write_time(&w, state->deadline_us);
    else
        write_op(&w, 'N');
    write_text(&w, "closed");
    write_bool(&w, state->closed);
    write_participants(&w, state);
    write_nodes(&w, "wait_list", state, false);
    write_nodes(&w, "redundancy_list", state, true);
    write_heartbeats(&w, state);
    end_object(&w);
    write_op(&w, '.');
    tt__base64_encode(text, w.out.data, w.out.size);
    tt__bytes_put(text, "", 1);
    bool failed = w.out.failed || text->failed;
    text->size -= !failed;
    tt__bytes_free(&w.out);
    return failed ? tt__fail(TT_ERR_MEMORY, "no memory for a rendezvous of %zu nodes", state->count) : TT_OK;
}

/* ---- reading */

tt_status tt__torch_decode(tt__torch_state *state, const void *text, size_t size) {
    tt__bytes pickle = {0};
    *state = (tt__torch_state){0};
    if (size == strlen(TT__TORCH_NO_STATE) && !memcmp(text, TT__TORCH_NO_STATE, size))
        return TT_OK;
    tt_status status = size > TT__TORCH_MAX_STATE ? tt__fail(TT_ERR_UNSUPPORTED, "%zu bytes: at most %d are supported",
                                                             size, TT__TORCH_MAX_STATE)
                                                  : tt__base64_decode(&pickle, text, size);
    if (!status)
        status = tt__torch_unpickle(state, pickle.data, pickle.size);
    tt__bytes_free(&pickle);
    if (status) {
        tt__fail_prefix("the state of PyTorch's rendezvous in the store is not understood");
        tt__torch_state_free(state);
    }
    return status;
}
