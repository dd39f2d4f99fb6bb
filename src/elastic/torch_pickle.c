/* The reader of the state's pickle: a stack, a memo, and opcodes that push and join values, protocols 4 and 5. Values
 * are numbers of entries in one table, which never point into each other otherwise, so that it goes at once. What the
 * last one says is then taken apart to a fixed depth, whatever circles a stranger has tied.
 *
 * checkpoint/pickle.c, which reads .pt files, is another machine: its values hold tensors and storages of an archive,
 * it has no objects of classes, and it is in a layer that launchers don't link. The two share no more than opcodes. */
#include "elastic/torch_state.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 1 << 20, MAX_ATTRIBUTES = 2 * 16 };

typedef enum value_kind {
    V_NONE,
    V_BOOL,
    V_INT,
    V_TEXT,
    V_BYTES,
    V_TUPLE,
    V_DICT, /* items: key, value, key, value... */
    V_SET,
    V_CLASS,  /* number: which */
    V_OBJECT, /* number: of which class; items[0]: its attributes, a dict, when BUILD has given them */
    V_DELTA,  /* of no length */
    V_ZONE,   /* UTC */
    V_TIME    /* number: us since 1970; aware: size 1 */
} value_kind;

enum { C_STATE, C_NODE, C_DATETIME, C_TIMEZONE, C_TIMEDELTA, C_COUNT };

static const struct {
    const char *module, *name;
} classes[C_COUNT] = {
    [C_STATE] = {"torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_RendezvousState"},
    [C_NODE] = {"torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_NodeDesc"},
    [C_DATETIME] = {"datetime", "datetime"},
    [C_TIMEZONE] = {"datetime", "timezone"},
    [C_TIMEDELTA] = {"datetime", "timedelta"},
};

typedef struct run {
    uint32_t *item;
    size_t count, room;
} run;

typedef struct value {
    value_kind kind;
    int64_t number;
    const uint8_t *data; /* V_TEXT, V_BYTES: in the pickle */
    size_t size;
    run items;
} value;

typedef struct machine {
    const uint8_t *begin, *at, *end;
    value *values;
    size_t count, room;
    run stack, memo, marks;
    bool stopped;
} machine;

static const char *const kind_names[] = {"None",      "a bool",   "an int",    "a text",  "bytes",
                                         "a tuple",   "a dict",   "a set",     "a class", "an object",
                                         "timedelta", "timezone", "a datetime"};

static tt_status bad(const machine *m, const char *expected, const value *got) {
    return tt__fail(TT_ERR_FORMAT, "expected %s, got %s, at byte %zu", expected,
                    got ? kind_names[got->kind] : "nothing", (size_t)(m->at - m->begin));
}

/* ---- values */

static tt_status run_add(run *r, uint32_t item) {
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 8;
        uint32_t *items = realloc(r->item, room * sizeof *items);
        if (!items)
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu values", room);
        r->item = items;
        r->room = room;
    }
    r->item[r->count++] = item;
    return TT_OK;
}

/* Make a value and push it. */
static tt_status push_new(machine *m, value v) {
    if (m->count == MAX_VALUES)
        return tt__fail(TT_ERR_UNSUPPORTED, "more than %d values", MAX_VALUES);
    if (m->count == m->room) {
        size_t room = m->room ? 2 * m->room : 64;
        value *values = realloc(m->values, room * sizeof *values);
        if (!values)
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu values", room);
        m->values = values;
        m->room = room;
    }
    m->values[m->count] = v;
    return run_add(&m->stack, (uint32_t)m->count++);
}

static size_t values_above_mark(const machine *m) {
    return m->stack.count - (m->marks.count ? m->marks.item[m->marks.count - 1] : 0);
}

/* The value `below` the top, down to the last mark; NULL: there is none. */
static value *peek(const machine *m, size_t below) {
    return below < values_above_mark(m) ? &m->values[m->stack.item[m->stack.count - 1 - below]] : NULL;
}

static tt_status need_values(const machine *m, size_t n) {
    return values_above_mark(m) < n ? tt__fail(TT_ERR_FORMAT, "expected %zu values on the stack, got %zu, at byte %zu",
                                               n, values_above_mark(m), (size_t)(m->at - m->begin))
                                    : TT_OK;
}

/* ---- arguments of opcodes */

static tt_status take(machine *m, uint64_t size, const uint8_t **from) {
    if (size > (uint64_t)(m->end - m->at))
        return tt__fail(TT_ERR_FORMAT, "expected %llu more bytes, got %zu: it is cut short", (unsigned long long)size,
                        (size_t)(m->end - m->at));
    *from = m->at;
    m->at += size;
    return TT_OK;
}

/* A little-endian number. */
static tt_status take_little_endian(machine *m, size_t width, uint64_t *number) {
    const uint8_t *from = NULL;
    *number = 0;
    TT__TRY(take(m, width, &from));
    for (size_t i = 0; i < width; i++)
        *number |= (uint64_t)from[i] << (8 * i);
    return TT_OK;
}

static tt_status push_number(machine *m, size_t width) {
    uint64_t number;
    TT__TRY(take_little_endian(m, width, &number));
    return push_new(m, (value){.kind = V_INT, .number = width == 4 ? (int32_t)number : (int64_t)number});
}

static tt_status push_long(machine *m) {
    uint64_t size, number;
    TT__TRY(take_little_endian(m, 1, &size));
    if (size > 8)
        return tt__fail(TT_ERR_UNSUPPORTED, "an int of %d bytes", (int)size);
    TT__TRY(take_little_endian(m, size, &number));
    if (size > 0 && size < 8 && number >> (8 * size - 1))
        number |= ~UINT64_C(0) << (8 * size);
    return push_new(m, (value){.kind = V_INT, .number = (int64_t)number});
}

static tt_status push_string(machine *m, value_kind kind, size_t width) {
    uint64_t size;
    value v = {.kind = kind};
    TT__TRY(take_little_endian(m, width, &size));
    TT__TRY(take(m, size, &v.data));
    v.size = size;
    return push_new(m, v);
}

/* ---- joining values */

/* Move what lies above the last mark into the value below it, which is of `kind`. */
static tt_status close_mark(machine *m, value_kind kind) {
    if (!m->marks.count)
        return tt__fail(TT_ERR_FORMAT, "expected a mark on the stack, got none");
    size_t height = m->marks.item[--m->marks.count], n = m->stack.count - height;
    value *into = height && (!m->marks.count || height > m->marks.item[m->marks.count - 1])
                      ? &m->values[m->stack.item[height - 1]]
                      : NULL;
    if (!into || into->kind != kind)
        return bad(m, kind == V_DICT ? "a dict under a mark" : "a set under a mark", into);
    if (kind == V_DICT && n % 2)
        return tt__fail(TT_ERR_FORMAT, "a dict with a key that has no value");
    for (size_t i = 0; i < n; i++)
        TT__TRY(run_add(&into->items, m->stack.item[height + i]));
    m->stack.count = height;
    return TT_OK;
}

static tt_status set_item(machine *m) {
    TT__TRY(need_values(m, 3));
    value *dict = peek(m, 2);
    if (dict->kind != V_DICT)
        return bad(m, "a dict", dict);
    TT__TRY(run_add(&dict->items, m->stack.item[m->stack.count - 2]));
    TT__TRY(run_add(&dict->items, m->stack.item[m->stack.count - 1]));
    m->stack.count -= 2;
    return TT_OK;
}

/* A tuple of the last n values. */
static tt_status push_tuple(machine *m, size_t n) {
    value tuple = {.kind = V_TUPLE};
    TT__TRY(need_values(m, n));
    for (size_t i = n; i > 0; i--) {
        tt_status status = run_add(&tuple.items, m->stack.item[m->stack.count - i]);
        if (status) {
            free(tuple.items.item);
            return status;
        }
    }
    m->stack.count -= n;
    size_t before = m->count;
    tt_status status = push_new(m, tuple);
    if (m->count == before)
        free(tuple.items.item);
    return status;
}

static bool is_text(const value *v, const char *text) {
    return v->kind == V_TEXT && v->size == strlen(text) && !memcmp(v->data, text, v->size);
}

static tt_status push_class(machine *m) {
    TT__TRY(need_values(m, 2));
    const value *module = peek(m, 1), *name = peek(m, 0);
    if (module->kind != V_TEXT || name->kind != V_TEXT)
        return bad(m, "a class's name", name);
    for (int64_t i = 0; i < C_COUNT; i++)
        if (is_text(module, classes[i].module) && is_text(name, classes[i].name)) {
            m->stack.count -= 2;
            return push_new(m, (value){.kind = V_CLASS, .number = i});
        }
    char text[80];
    snprintf(text, sizeof text, "%.*s.%.*s", (int)(module->size > 60 ? 60 : module->size), (const char *)module->data,
             (int)(name->size > 60 ? 60 : name->size), (const char *)name->data);
    return tt__fail(TT_ERR_UNSUPPORTED, "the class \"%s\", which no rendezvous of PyTorch's has",
                    tt__make_printable(text).text);
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. */
static int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = year / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* datetime(BYTES) and datetime(BYTES, UTC). */
static tt_status make_time(const machine *m, const value *args, value *out) {
    const value *bytes = args->items.count ? &m->values[args->items.item[0]] : NULL;
    const value *zone = args->items.count == 2 ? &m->values[args->items.item[1]] : NULL;
    if (!bytes || bytes->kind != V_BYTES || bytes->size != 10 || args->items.count > 2 ||
        (zone && zone->kind != V_ZONE))
        return bad(m, "the ten bytes of a time, perhaps with UTC", bytes);
    const uint8_t *b = bytes->data;
    int64_t year = b[0] << 8 | b[1], micro = b[7] << 16 | b[8] << 8 | b[9];
    if (year < 1970 || year > 9998 || b[2] < 1 || b[2] > 12 || b[3] < 1 || b[3] > 31 || b[4] > 23 || b[5] > 59 ||
        b[6] > 59 || micro > 999999)
        return tt__fail(TT_ERR_FORMAT, "expected a time from 1970 on, got %d-%d-%d", (int)year, b[2], b[3]);
    int64_t seconds = days_since_1970(year, b[2], b[3]) * 86400 + b[4] * 3600 + b[5] * 60 + b[6];
    *out = (value){.kind = V_TIME, .number = seconds * 1000000 + micro, .size = zone != NULL};
    return TT_OK;
}

/* timezone(timedelta(0)) and timedelta(0, 0, 0): PyTorch uses no zone but UTC. */
static tt_status make_utc(const machine *m, int64_t of, const value *args, value *out) {
    *out = (value){.kind = of == C_TIMEZONE ? V_ZONE : V_DELTA};
    bool good = args->items.count == (of == C_TIMEZONE ? 1 : 3);
    for (size_t i = 0; i < args->items.count; i++) {
        const value *arg = &m->values[args->items.item[i]];
        good = good && (of == C_TIMEZONE ? arg->kind == V_DELTA : arg->kind == V_INT && arg->number == 0);
    }
    return good ? TT_OK : tt__fail(TT_ERR_UNSUPPORTED, "a time in another zone than UTC");
}

static tt_status reduce_class(machine *m) {
    TT__TRY(need_values(m, 2));
    const value *of = peek(m, 1), *args = peek(m, 0);
    value made;
    if (of->kind != V_CLASS || args->kind != V_TUPLE)
        return bad(m, "a class and a tuple", of);
    if (of->number == C_DATETIME)
        TT__TRY(make_time(m, args, &made));
    else if (of->number == C_TIMEZONE || of->number == C_TIMEDELTA)
        TT__TRY(make_utc(m, of->number, args, &made));
    else
        return bad(m, "a class that is called", of);
    m->stack.count -= 2;
    return push_new(m, made);
}

static tt_status new_object(machine *m) {
    TT__TRY(need_values(m, 2));
    const value *of = peek(m, 1), *args = peek(m, 0);
    if (of->kind != V_CLASS || (of->number != C_STATE && of->number != C_NODE) || args->kind != V_TUPLE ||
        args->items.count)
        return bad(m, "a class of the rendezvous and no arguments", of);
    int64_t number = of->number;
    m->stack.count -= 2;
    return push_new(m, (value){.kind = V_OBJECT, .number = number});
}

static tt_status build(machine *m) {
    TT__TRY(need_values(m, 2));
    value *object = peek(m, 1);
    if (object->kind != V_OBJECT || object->items.count || peek(m, 0)->kind != V_DICT)
        return bad(m, "an object and its attributes", object);
    TT__TRY(run_add(&object->items, m->stack.item[m->stack.count - 1]));
    m->stack.count--;
    return TT_OK;
}

static tt_status memoize(machine *m) {
    TT__TRY(need_values(m, 1));
    return run_add(&m->memo, m->stack.item[m->stack.count - 1]);
}

static tt_status recall(machine *m, size_t width) {
    uint64_t number;
    TT__TRY(take_little_endian(m, width, &number));
    if (number >= m->memo.count)
        return tt__fail(TT_ERR_FORMAT, "expected one of %zu values in the memo, got number %llu", m->memo.count,
                        (unsigned long long)number);
    return run_add(&m->stack, m->memo.item[number]);
}

static tt_status check_protocol(machine *m) {
    uint64_t protocol;
    TT__TRY(take_little_endian(m, 1, &protocol));
    return protocol == 4 || protocol == 5
               ? TT_OK
               : tt__fail(TT_ERR_UNSUPPORTED, "expected pickle protocol 4 or 5, got %d", (int)protocol);
}

/* ---- the run */

static tt_status execute(machine *m, uint8_t op) {
    uint64_t ignored;
    switch (op) {
    case 0x80:
        return check_protocol(m);
    case 0x95:
        return take_little_endian(m, 8, &ignored); /* a frame's length */
    case '.':
        m->stopped = true;
        return TT_OK;
    case 'N':
        return push_new(m, (value){.kind = V_NONE});
    case 0x88:
        return push_new(m, (value){.kind = V_BOOL, .number = 1});
    case 0x89:
        return push_new(m, (value){.kind = V_BOOL});
    case 'K':
        return push_number(m, 1);
    case 'M':
        return push_number(m, 2);
    case 'J':
        return push_number(m, 4);
    case 0x8a:
        return push_long(m);
    case 0x8c:
        return push_string(m, V_TEXT, 1);
    case 'X':
        return push_string(m, V_TEXT, 4);
    case 'C':
        return push_string(m, V_BYTES, 1);
    case 'B':
        return push_string(m, V_BYTES, 4);
    case '}':
        return push_new(m, (value){.kind = V_DICT});
    case 0x8f:
        return push_new(m, (value){.kind = V_SET});
    case ')':
        return push_new(m, (value){.kind = V_TUPLE});
    case '(':
        return run_add(&m->marks, (uint32_t)m->stack.count);
    case 'u':
        return close_mark(m, V_DICT);
    case 's':
        return set_item(m);
    case 0x90:
        return close_mark(m, V_SET);
    case 0x85:
    case 0x86:
    case 0x87:
        return push_tuple(m, op - 0x84u);
    case 0x93:
        return push_class(m);
    case 'R':
        return reduce_class(m);
    case 0x81:
        return new_object(m);
    case 'b':
        return build(m);
    case 0x94:
        return memoize(m);
    case 'h':
        return recall(m, 1);
    case 'j':
        return recall(m, 4);
    default:
        return tt__fail(TT_ERR_UNSUPPORTED, "pickle opcode 0x%02x at byte %zu", op, (size_t)(m->at - m->begin) - 1);
    }
}

static tt_status machine_run(machine *m) {
    while (!m->stopped) {
        const uint8_t *op = NULL;
        TT__TRY(take(m, 1, &op));
        TT__TRY(execute(m, *op));
    }
    return m->stack.count == 1 ? TT_OK : tt__fail(TT_ERR_FORMAT, "expected one value, got %zu", m->stack.count);
}

/* ---- what it says */

/* The attributes of an object of a class; NULL with an error. */
static const run *attributes(const machine *m, const value *v, int64_t of) {
    if (v->kind != V_OBJECT || v->number != of || !v->items.count)
        return tt__fail_null(TT_ERR_FORMAT, "expected a %s, got %s", classes[of].name, kind_names[v->kind]);
    const run *found = &m->values[v->items.item[0]].items;
    return found->count <= MAX_ATTRIBUTES ? found
                                          : tt__fail_null(TT_ERR_FORMAT, "a %s of many parts", classes[of].name);
}

/* Check that a dict or a set is not larger than a job. What it holds may be one node, again and again. */
static tt_status check_node_count(const value *v) {
    size_t n = v->kind == V_DICT ? v->items.count / 2 : v->items.count;
    return n <= TT__TORCH_MAX_NODES
               ? TT_OK
               : tt__fail(TT_ERR_UNSUPPORTED, "a rendezvous of %zu nodes: at most %d are supported", n,
                          TT__TORCH_MAX_NODES);
}

static tt_status wrong_attribute(const value *key, const value *v) {
    char name[40] = "?";
    if (key->kind == V_TEXT)
        snprintf(name, sizeof name, "%.*s", (int)(key->size > 39 ? 39 : key->size), (const char *)key->data);
    return tt__fail(TT_ERR_UNSUPPORTED, "the attribute \"%s\" (%s) is not one that PyTorch 1.13 to 2.15 have",
                    tt__make_printable(name).text, kind_names[v->kind]);
}

static tt_status take_node_address(const value *v, char address[TT__TORCH_ADDRESS]) {
    if (v->kind != V_TEXT || v->size >= TT__TORCH_ADDRESS || memchr(v->data, 0, v->size))
        return tt__fail(TT_ERR_UNSUPPORTED, "a node's address: expected a text of less than %d bytes",
                        TT__TORCH_ADDRESS);
    memcpy(address, v->data, v->size);
    address[v->size] = '\0';
    return tt__is_utf8(address) ? TT_OK : tt__fail(TT_ERR_FORMAT, "a node's address that is not UTF-8");
}

/* Nodes have two attributes for the address where we have written them. */
static tt_status take_node(const machine *m, const value *v, tt__torch_node *node) {
    const run *of = attributes(m, v, C_NODE);
    bool has_address = false, has_pid = false, has_id = false;
    if (!of)
        return TT_ERR_FORMAT;
    for (size_t i = 0; i + 1 < of->count; i += 2) {
        const value *key = &m->values[of->item[i]], *item = &m->values[of->item[i + 1]];
        if (is_text(key, "addr") || is_text(key, "fqdn")) {
            TT__TRY(take_node_address(item, node->address));
            has_address = true;
        } else if (is_text(key, "pid") && item->kind == V_INT) {
            node->pid = item->number;
            has_pid = true;
        } else if (is_text(key, "local_id") && item->kind == V_INT) {
            node->local_id = item->number;
            has_id = true;
        } else {
            return wrong_attribute(key, item);
        }
    }
    return has_address && has_pid && has_id ? TT_OK
                                            : tt__fail(TT_ERR_FORMAT, "a node without an address, a pid or an id");
}

static tt_status take_member(const machine *m, tt__torch_state *state, uint32_t of, tt__torch_member **member) {
    tt__torch_node node;
    TT__TRY(take_node(m, &m->values[of], &node));
    *member = tt__torch_add(state, &node);
    return *member ? TT_OK : tt_last_status();
}

static tt_status take_time(const value *v, tt__torch_state *state, int64_t *us) {
    tt__torch_times times = v->size ? TT__TORCH_AWARE : TT__TORCH_NAIVE;
    if (v->kind != V_TIME)
        return tt__fail(TT_ERR_FORMAT, "expected a time, got %s", kind_names[v->kind]);
    if (state->times != TT__TORCH_TIMES_UNKNOWN && state->times != times)
        return tt__fail(TT_ERR_UNSUPPORTED, "times with a zone beside times without: the nodes' versions of PyTorch "
                                            "don't fit");
    state->times = times;
    *us = v->number;
    return TT_OK;
}

static tt_status take_ranks(const machine *m, const value *v, tt__torch_state *state) {
    tt__torch_member *member = NULL;
    TT__TRY(check_node_count(v));
    for (size_t i = 0; i + 1 < v->items.count; i += 2) {
        const value *rank = &m->values[v->items.item[i + 1]];
        TT__TRY(take_member(m, state, v->items.item[i], &member));
        if (rank->kind != V_INT || rank->number < 0 || rank->number >= TT__TORCH_MAX_NODES)
            return bad(m, "a participant's rank", rank);
        member->participant = true;
        member->rank = rank->number;
    }
    return TT_OK;
}

static tt_status take_heartbeats(const machine *m, const value *v, tt__torch_state *state) {
    tt__torch_member *member = NULL;
    TT__TRY(check_node_count(v));
    for (size_t i = 0; i + 1 < v->items.count; i += 2) {
        TT__TRY(take_member(m, state, v->items.item[i], &member));
        TT__TRY(take_time(&m->values[v->items.item[i + 1]], state, &member->beat_us));
        member->beats = true;
    }
    return TT_OK;
}

static tt_status take_set(const machine *m, const value *v, tt__torch_state *state, bool redundant) {
    tt__torch_member *member = NULL;
    TT__TRY(check_node_count(v));
    for (size_t i = 0; i < v->items.count; i++) {
        TT__TRY(take_member(m, state, v->items.item[i], &member));
        *(redundant ? &member->redundant : &member->waiting) = true;
    }
    return TT_OK;
}

static tt_status take_deadline(const value *v, tt__torch_state *state) {
    if (v->kind == V_NONE)
        return TT_OK;
    state->has_deadline = true;
    return take_time(v, state, &state->deadline_us);
}

enum { HAS_ROUND = 1, HAS_COMPLETE = 2, HAS_CLOSED = 4, HAS_PARTICIPANTS = 8, HAS_WAITING = 16, HAS_BEATS = 32 };

static tt_status take_attribute(const machine *m, tt__torch_state *state, const value *key, const value *v, int *has) {
    if (is_text(key, "round") && v->kind == V_INT && v->number >= 0 && v->number < INT32_MAX) {
        state->round = v->number;
        *has |= HAS_ROUND;
    } else if (is_text(key, "complete") && v->kind == V_BOOL) {
        state->complete = v->number;
        *has |= HAS_COMPLETE;
    } else if (is_text(key, "closed") && v->kind == V_BOOL) {
        state->closed = v->number;
        *has |= HAS_CLOSED;
    } else if (is_text(key, "deadline")) {
        return take_deadline(v, state);
    } else if (is_text(key, "participants") && v->kind == V_DICT) {
        *has |= HAS_PARTICIPANTS;
        return take_ranks(m, v, state);
    } else if (is_text(key, "wait_list") && v->kind == V_SET) {
        *has |= HAS_WAITING;
        return take_set(m, v, state, false);
    } else if (is_text(key, "redundancy_list") && v->kind == V_SET) {
        return take_set(m, v, state, true);
    } else if (is_text(key, "last_heartbeats") && v->kind == V_DICT) {
        *has |= HAS_BEATS;
        return take_heartbeats(m, v, state);
    } else {
        return wrong_attribute(key, v);
    }
    return TT_OK;
}

static tt_status take_object_state(const machine *m, tt__torch_state *state) {
    const run *of = attributes(m, &m->values[m->stack.item[0]], C_STATE);
    int has = 0;
    if (!of)
        return TT_ERR_FORMAT;
    for (size_t i = 0; i + 1 < of->count; i += 2)
        TT__TRY(take_attribute(m, state, &m->values[of->item[i]], &m->values[of->item[i + 1]], &has));
    return has == 2 * HAS_BEATS - 1 ? TT_OK : tt__fail(TT_ERR_FORMAT, "attributes are missing: it is no whole state");
}

tt_status tt__torch_unpickle(tt__torch_state *state, const uint8_t *data, size_t size) {
    if (!size)
        return tt__fail(TT_ERR_FORMAT, "expected a pickle, got nothing");
    machine m = {.begin = data, .at = data, .end = data + size};
    tt_status status = machine_run(&m);
    if (!status)
        status = take_object_state(&m, state);
    for (size_t i = 0; i < m.count; i++)
        free(m.values[i].items.item);
    free(m.values);
    free(m.stack.item);
    free(m.memo.item);
    free(m.marks.item);
    return status;
}
