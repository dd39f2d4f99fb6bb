/* The opcodes of the pickle machine, and their run. */
#include "checkpoint/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/plain_text.h"
#include "checkpoint/safetensors.h"
#include "tensor/core/tensor.h"

/* ---- the stack ---- */

static tt_status marks_add(tt__pickle_marks *marks, size_t height) {
    if (marks->count == marks->room) {
        size_t room = marks->room ? 2 * marks->room : 16;
        size_t *item = realloc(marks->item, room * sizeof *item);
        if (!item)
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu marks of a pickle", room);
        marks->item = item;
        marks->room = room;
    }
    marks->item[marks->count++] = height;
    return TT_OK;
}

/* Return how many values lie above the last mark. */
static size_t above_mark(const tt__pickle *p) {
    return p->stack.count - (p->marks.count ? p->marks.item[p->marks.count - 1] : 0);
}

/* Check that `n` values lie above the last mark. */
static tt_status need(const tt__pickle *p, size_t n) {
    if (above_mark(p) < n)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected %zu values on the stack, got %zu", n, above_mark(p));
    return TT_OK;
}

static tt_value *top(const tt__pickle *p, size_t below) { return p->stack.item[p->stack.count - 1 - below]; }

/* Take the last mark away: *height is where the stack stood. */
static tt_status pop_mark(tt__pickle *p, size_t *height) {
    if (p->marks.count == 0)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected a MARK on the stack, got none");
    *height = p->marks.item[--p->marks.count];
    return TT_OK;
}

/* ---- reading arguments ---- */

/* Move `size` bytes on; *from: where they begin. */
static tt_status take_bytes(tt__pickle *p, uint64_t size, const unsigned char **from) {
    if (size > (uint64_t)(p->end - p->at))
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected %llu more bytes, got %zu: it is cut short",
                               (unsigned long long)size, (size_t)(p->end - p->at));
    *from = p->at;
    p->at += size;
    return TT_OK;
}

/* Read a little-endian number of n bytes. */
static tt_status take_uint(tt__pickle *p, size_t n, uint64_t *number) {
    const unsigned char *from = NULL;
    *number = 0;
    TT__TRY(take_bytes(p, n, &from));
    memcpy(number, from, n);
    return TT_OK;
}

/* Read a line up to its end, without it, into `line`. */
static tt_status take_line(tt__pickle *p, char *line, size_t room) {
    size_t left = (size_t)(p->end - p->at), length = 0;
    while (length < left && p->at[length] != '\n')
        length++;
    if (length == left || length >= room || memchr(p->at, 0, length))
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected a line of less than %zu bytes", room);
    memcpy(line, p->at, length);
    line[length] = 0;
    p->at += length + 1;
    return TT_OK;
}

/* ---- opcodes ---- */

static tt_status op_protocol(tt__pickle *p, size_t width) {
    uint64_t protocol = 0;
    TT__TRY(take_uint(p, width, &protocol));
    if (protocol < 2 || protocol > 5)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "expected pickle protocol 2 to 5, got %d", (int)protocol);
    return TT_OK;
}

/* Skip the length of a frame, which is not needed here. */
static tt_status op_frame(tt__pickle *p, size_t width) {
    uint64_t size = 0;
    return take_uint(p, width, &size);
}

static tt_status op_stop(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 1));
    if (p->stack.count != 1)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected one value at the end, got %zu", p->stack.count);
    p->stopped = true;
    return TT_OK;
}

static tt_status op_mark(tt__pickle *p, size_t unused) {
    (void)unused;
    return marks_add(&p->marks, p->stack.count);
}

static tt_status op_pop(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 1));
    p->stack.count--;
    return TT_OK;
}

static tt_status op_empty(tt__pickle *p, size_t type) { return tt__pickle_push(p, tt__pickle_new(p, (int)type)); }

static tt_status op_bool(tt__pickle *p, size_t is_true) {
    tt_value *v = tt__pickle_new(p, TT_VALUE_BOOL);
    if (v)
        v->boolean = is_true;
    return tt__pickle_push(p, v);
}

static tt_status push_int(tt__pickle *p, int64_t x) {
    tt_value *v = tt__pickle_new(p, TT_VALUE_INT);
    if (v)
        v->integer = x;
    return tt__pickle_push(p, v);
}

static tt_status op_int(tt__pickle *p, size_t width) {
    uint64_t x = 0;
    TT__TRY(take_uint(p, width, &x));
    return push_int(p, width == 4 ? (int32_t)x : (int64_t)x); /* of these numbers only that of 4 bytes has a sign */
}

/* Read a number in two's complement. Its size is in the file; more than 8 bytes are not supported. */
static tt_status op_long(tt__pickle *p, size_t width) {
    uint64_t size = 0, x = 0;
    const unsigned char *from = NULL;
    TT__TRY(take_uint(p, width, &size));
    TT__TRY(take_bytes(p, size, &from));
    if (size > 8)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "an int of %llu bytes: at most 8 are supported",
                               (unsigned long long)size);
    memcpy(&x, from, size);
    if (size > 0 && size < 8 && from[size - 1] & 0x80)
        x |= ~UINT64_C(0) << (8 * size);
    return push_int(p, (int64_t)x);
}

/* The only number that is big-endian. */
static tt_status op_float(tt__pickle *p, size_t width) {
    uint64_t bits = 0;
    TT__TRY(take_uint(p, width, &bits));
    bits = __builtin_bswap64(bits);
    tt_value *v = tt__pickle_new(p, TT_VALUE_FLOAT);
    if (v)
        memcpy(&v->real, &bits, sizeof v->real);
    return tt__pickle_push(p, v);
}

static tt_status op_string(tt__pickle *p, size_t width) {
    uint64_t size = 0;
    const unsigned char *from = NULL;
    TT__TRY(take_uint(p, width, &size));
    TT__TRY(take_bytes(p, size, &from));
    if (memchr(from, 0, size))
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "a string with a NUL in it");
    tt_value *v = tt__pickle_new(p, TT_VALUE_STRING);
    if (v && !(v->string = strndup((const char *)from, size)))
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a text of %llu bytes", p->name, (unsigned long long)size);
    if (v && !tt__is_utf8(v->string))
        return tt__pickle_fail(p, TT_ERR_FORMAT, "expected UTF-8, got the string \"%s\"",
                               tt__make_printable(v->string).text);
    return tt__pickle_push(p, v);
}

static tt_status op_append(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 2));
    if (top(p, 1)->type != TT_VALUE_LIST)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "APPEND: expected a list, got %s", TT__VALUE_TEXT(top(p, 1)));
    TT__TRY(tt__value_push(top(p, 1), NULL, top(p, 0)));
    p->stack.count--;
    return TT_OK;
}

static tt_status op_appends(tt__pickle *p, size_t unused) {
    (void)unused;
    size_t height = 0;
    TT__TRY(pop_mark(p, &height));
    TT__TRY(need(p, p->stack.count - height + 1));
    tt_value *list = p->stack.item[height - 1];
    if (list->type != TT_VALUE_LIST)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "APPENDS: expected a list, got %s", TT__VALUE_TEXT(list));
    for (size_t i = height; i < p->stack.count; i++)
        TT__TRY(tt__value_push(list, NULL, p->stack.item[i]));
    p->stack.count = height;
    return TT_OK;
}

/* Set the pairs from stack place `from` on in the dict below them. */
static tt_status set_items(tt__pickle *p, size_t from) {
    tt_value *dict = p->stack.item[from - 1];
    if (dict->type != TT_VALUE_DICT || (p->stack.count - from) % 2)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "SETITEMS: expected a dict and pairs, got %s and %zu values",
                               TT__VALUE_TEXT(dict), p->stack.count - from);
    for (size_t i = from; i < p->stack.count; i += 2) {
        const tt_value *key = p->stack.item[i];
        if (key->type != TT_VALUE_STRING && key->type != TT_VALUE_INT)
            return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "expected strings or ints as keys of a dict, got %s",
                                   TT__VALUE_TEXT(key));
        TT__TRY(tt__value_push(dict, p->stack.item[i], p->stack.item[i + 1]));
    }
    p->stack.count = from;
    return TT_OK;
}

static tt_status op_set_item(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 3));
    return set_items(p, p->stack.count - 2);
}

static tt_status op_set_items(tt__pickle *p, size_t unused) {
    (void)unused;
    size_t height = 0;
    TT__TRY(pop_mark(p, &height));
    TT__TRY(need(p, p->stack.count - height + 1));
    return set_items(p, height);
}

/* Put the n topmost values into a tuple. */
static tt_status op_tuple_of(tt__pickle *p, size_t n) {
    TT__TRY(need(p, n));
    tt_value *tuple = tt__pickle_new(p, TT_VALUE_TUPLE);
    if (!tuple)
        return tt_last_status();
    for (size_t i = p->stack.count - n; i < p->stack.count; i++)
        TT__TRY(tt__value_push(tuple, NULL, p->stack.item[i]));
    p->stack.count -= n;
    return tt__pickle_push(p, tuple);
}

static tt_status op_tuple(tt__pickle *p, size_t unused) {
    (void)unused;
    size_t height = 0;
    TT__TRY(pop_mark(p, &height));
    return op_tuple_of(p, p->stack.count - height);
}

static tt_status op_global(tt__pickle *p, size_t unused) {
    (void)unused;
    char module[256], name[256];
    TT__TRY(take_line(p, module, sizeof module));
    TT__TRY(take_line(p, name, sizeof name));
    return tt__pickle_global_push(p, module, name);
}

static tt_status op_stack_global(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 2));
    const tt_value *module = top(p, 1), *name = top(p, 0);
    if (module->type != TT_VALUE_STRING || name->type != TT_VALUE_STRING)
        return tt__pickle_fail(p, TT_ERR_FORMAT, "STACK_GLOBAL: expected two strings, got %s and %s",
                               TT__VALUE_TEXT(module), TT__VALUE_TEXT(name));
    p->stack.count -= 2;
    return tt__pickle_global_push(p, module->string, name->string);
}

static tt_status op_reduce(tt__pickle *p, size_t unused) {
    (void)unused;
    tt_value *made = NULL;
    TT__TRY(need(p, 2));
    TT__TRY(tt__pickle_call(p, top(p, 1), top(p, 0), &made));
    p->stack.count -= 2;
    return tt__pickle_push(p, made);
}

/* Ignore the attributes of a dict: in state dicts they say the versions of modules. Values have no attributes, so those
 * of anything else are refused. */
static tt_status op_build(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 2));
    if (top(p, 1)->type != TT_VALUE_DICT)
        return tt__pickle_fail(p, TT_ERR_UNSUPPORTED, "attributes of %s: only dicts may have them",
                               TT__VALUE_TEXT(top(p, 1)));
    p->stack.count--;
    return TT_OK;
}

static tt_status op_persistent_id(tt__pickle *p, size_t unused) {
    (void)unused;
    TT__TRY(need(p, 1));
    const tt_value *id = top(p, 0);
    p->stack.count--;
    return tt__pickle_storage_push(p, id);
}

/* ---- the memo ---- */

/* Remember the top value as number `i`. Writers count from 0, so a number beyond the bytes of the file is forged. */
static tt_status memo_set(tt__pickle *p, uint64_t i) {
    TT__TRY(need(p, 1));
    if (i >= (uint64_t)(p->end - p->begin))
        return tt__pickle_fail(p, TT_ERR_FORMAT, "a memo number of %llu in a pickle of %zu bytes",
                               (unsigned long long)i, (size_t)(p->end - p->begin));
    while (p->memo.count <= i)
        TT__TRY(tt__pickle_values_add(&p->memo, NULL));
    p->memo.item[i] = top(p, 0);
    return TT_OK;
}

static tt_status op_memo_put(tt__pickle *p, size_t width) {
    uint64_t i = 0;
    TT__TRY(take_uint(p, width, &i));
    return memo_set(p, i);
}

static tt_status op_memoize(tt__pickle *p, size_t unused) {
    (void)unused;
    return memo_set(p, p->memo.count);
}

static tt_status op_memo_get(tt__pickle *p, size_t width) {
    uint64_t i = 0;
    TT__TRY(take_uint(p, width, &i));
    if (i >= p->memo.count || !p->memo.item[i])
        return tt__pickle_fail(p, TT_ERR_FORMAT, "the memo has no number %llu", (unsigned long long)i);
    return tt__pickle_push(p, p->memo.item[i]);
}

/* ---- running ---- */

typedef struct opcode {
    tt_status (*run)(tt__pickle *p, size_t argument);
    size_t argument; /* by opcode: bytes of what follows, a number of values, or a type */
} opcode;

static const opcode opcodes[256] = {
    [0x80] = {op_protocol, 1}, [0x95] = {op_frame, 8},        ['.'] = {op_stop, 0},
    ['('] = {op_mark, 0},      ['0'] = {op_pop, 0},           ['N'] = {op_empty, TT_VALUE_NONE},
    [0x88] = {op_bool, true},  [0x89] = {op_bool, false},     ['K'] = {op_int, 1},
    ['M'] = {op_int, 2},       ['J'] = {op_int, 4},           [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},     ['G'] = {op_float, 8},         [0x8c] = {op_string, 1},
    ['X'] = {op_string, 4},    [0x8d] = {op_string, 8},       [']'] = {op_empty, TT_VALUE_LIST},
    ['a'] = {op_append, 0},    ['e'] = {op_appends, 0},       ['}'] = {op_empty, TT_VALUE_DICT},
    ['s'] = {op_set_item, 0},  ['u'] = {op_set_items, 0},     [')'] = {op_empty, TT_VALUE_TUPLE},
    [0x85] = {op_tuple_of, 1}, [0x86] = {op_tuple_of, 2},     [0x87] = {op_tuple_of, 3},
    ['t'] = {op_tuple, 0},     ['c'] = {op_global, 0},        [0x93] = {op_stack_global, 0},
    ['R'] = {op_reduce, 0},    [0x81] = {op_reduce, 0}, /* NEWOBJ: makes an object of a class, as calling it does */
    ['b'] = {op_build, 0},     ['Q'] = {op_persistent_id, 0}, ['q'] = {op_memo_put, 1},
    ['r'] = {op_memo_put, 4},  [0x94] = {op_memoize, 0},      ['h'] = {op_memo_get, 1},
    ['j'] = {op_memo_get, 4},
};

static tt_status run_opcodes(tt__pickle *p) {
    while (!p->stopped) {
        uint64_t code = 0;
        TT__TRY(take_uint(p, 1, &code));
        if (!opcodes[code].run)
            return tt__pickle_fail(p, TT_ERR_UNSUPPORTED,
                                   "opcode 0x%02x, which state dicts of tensors, numbers and texts do not need",
                                   (unsigned)code);
        TT__TRY(opcodes[code].run(p, opcodes[code].argument));
    }
    return TT_OK;
}

static void pickle_free(tt__pickle *p) {
    for (size_t i = 0; i < p->objects.count; i++)
        tt__value_release(p->objects.item[i]);
    for (size_t i = 0; p->storages && i < p->archive->count; i++)
        tt__tensor_disown(p->storages[i].elements);
    free(p->storages);
    free(p->objects.item);
    free(p->stack.item);
    free(p->memo.item);
    free(p->marks.item);
}

tt_status tt__pickle_run(tt_value **out, const tt__archive *archive, const unsigned char *data, size_t size) {
    tt__pickle p = {.name = archive->name, .archive = archive, .begin = data, .at = data, .end = data + size};
    p.storages = calloc(archive->count, sizeof *p.storages);
    tt_status status = p.storages ? run_opcodes(&p) : tt__fail(TT_ERR_MEMORY, "%s: no memory for storages", p.name);
    if (!status)
        status = tt__pickle_take_tree(&p, p.stack.item[0]);
    if (!status)
        *out = p.stack.item[0];
    pickle_free(&p);
    return status;
}
