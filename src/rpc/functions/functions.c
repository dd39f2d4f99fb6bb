/* Signatures of functions, and the table of the registered functions. The table does not change after the first worker
 * is made, and is read without a lock then. */
#include "rpc/functions/functions.h"

#include "base/error.h"
#include "base/hash.h"
#include "rpc/workers/network.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading a signature */

/* The text of a signature, and the place in it that is read next. */
typedef struct signature_text {
    const char *whole, *at;
} signature_text;

static tt_status signature_wrong(const signature_text *text, const char *expected) {
    return tt__fail(TT_ERR_INVALID, "the signature \"%s\": expected %s at \"%.20s\"", text->whole, expected, text->at);
}

static void skip_blanks(signature_text *text) {
    while (*text->at == ' ')
        text->at++;
}

static bool skip_signature_word(signature_text *text, const char *word) {
    size_t n = strlen(word);
    skip_blanks(text);
    if (strncmp(text->at, word, n) != 0)
        return false;
    text->at += n;
    return true;
}

static size_t name_length(const char *at) {
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        n++;
    return n;
}

static bool is_kind_name(const char *at, size_t n, const char *name) {
    return strlen(name) == n && !strncmp(at, name, n);
}

static tt_status read_type(signature_text *text, tt__rpc_type *out) {
    skip_blanks(text);
    size_t n = name_length(text->at);
    int kind = is_kind_name(text->at, n, "any") ? TT__RPC_ANY : 0;
    while (kind < TT__RPC_ANY && !is_kind_name(text->at, n, tt_rpc_kind_name((tt_rpc_kind)kind)))
        kind++;
    if (kind == TT__RPC_ANY && !is_kind_name(text->at, n, "any"))
        return signature_wrong(text,
                               "a type (none, bool, int, float, text, bytes, tensor, rref, list, map, object or any)");
    text->at += n;
    *out = (tt__rpc_type){.kind = (uint8_t)kind};
    if (*text->at == '?') {
        out->optional = true;
        text->at++;
    }
    return TT_OK;
}

static tt_status read_parameter(signature_text *text, tt__rpc_signature *out) {
    if (out->count == TT__RPC_PARAMETERS)
        return signature_wrong(text, "at most 32 parameters");
    TT__TRY(read_type(text, &out->parameters[out->count++]));
    out->many = skip_signature_word(text, "...");
    skip_blanks(text);
    text->at += name_length(text->at);
    return TT_OK;
}

/* Parse a signature. Errors: TT_ERR_INVALID, whose text says what was expected, and where. */
static tt_status signature_read(tt__rpc_signature *out, const char *whole) {
    signature_text text = {whole, whole};
    *out = (tt__rpc_signature){.result.kind = TT_RPC_NONE};
    if (!skip_signature_word(&text, "("))
        return signature_wrong(&text, "\"(\"");
    if (!skip_signature_word(&text, ")")) {
        do {
            if (out->many)
                return signature_wrong(&text, "\")\", since \"...\" stands at the last parameter alone,");
            TT__TRY(read_parameter(&text, out));
        } while (skip_signature_word(&text, ","));
        if (!skip_signature_word(&text, ")"))
            return signature_wrong(&text, "\",\" or \")\"");
    }
    if (skip_signature_word(&text, "->"))
        TT__TRY(read_type(&text, &out->result));
    skip_blanks(&text);
    return *text.at ? signature_wrong(&text, "\"->\" or the end") : TT_OK;
}

/* ---- checking by a signature */

static bool fits_type(const tt__rpc_type *type, const tt_rpc_value *value) {
    if (type->kind == TT__RPC_ANY)
        return true;
    return value->kind == type->kind || (type->optional && value->kind == TT_RPC_NONE) ||
           (type->kind == TT_RPC_FLOAT && value->kind == TT_RPC_INT);
}

static const char *type_name(const tt__rpc_type *type) {
    return type->kind == TT__RPC_ANY ? "any" : tt_rpc_kind_name((tt_rpc_kind)type->kind);
}

bool tt__signature_is_null(const tt__rpc_type *type, const tt_rpc_value *value) {
    return value->kind == TT_RPC_NONE && !type->optional &&
           (type->kind == TT_RPC_TENSOR || type->kind == TT_RPC_RREF || type->kind == TT_RPC_TEXT);
}

tt_status tt__signature_check_args(const tt__rpc_signature *signature, const char *function, const char *text,
                                   const tt_rpc_value *values, int64_t count) {
    int64_t least = signature->count - signature->many;
    if (count < least || (count > least && !signature->many))
        return tt__fail(TT_ERR_INVALID, "%s%s: expected %s%lld arguments, got %lld", function, text,
                        signature->many ? "at least " : "", (long long)least, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const tt__rpc_type *type = &signature->parameters[i < signature->count ? i : signature->count - 1];
        if (values[i].kind == TT_RPC_OBJECT)
            return tt__fail(TT_ERR_INVALID,
                            "%s%s: argument %lld is an object (%s), which stays in its process: give a reference to "
                            "it (tt_rref_new())",
                            function, text, (long long)i, values[i].object.type ? values[i].object.type : "?");
        if (!fits_type(type, &values[i])) {
            char earlier[TT__ERROR_TEXT_SIZE] = "";
            tt_status why = tt__signature_is_null(type, &values[i]) ? tt_last_status() : TT_OK;
            if (why)
                tt__error_quote(earlier, sizeof earlier);
            return tt__fail(why ? why : TT_ERR_INVALID, "%s%s: expected argument %lld to be %s%s, got %s%s", function,
                            text, (long long)i, type_name(type), type->optional ? " or none" : "",
                            tt_rpc_kind_name(values[i].kind), earlier);
        }
    }
    return TT_OK;
}

tt_status tt__signature_check_result(const tt__rpc_signature *signature, const char *function, const char *text,
                                     const tt_rpc_value *value) {
    if (value->kind == TT_RPC_NONE && signature->result.kind != TT_RPC_NONE && !signature->result.optional &&
        signature->result.kind != TT__RPC_ANY)
        return tt__fail(TT_ERR_INVALID, "%s%s: the function returned nothing, and its signature says %s", function,
                        text, type_name(&signature->result));
    if (!fits_type(&signature->result, value))
        return tt__fail(TT_ERR_INVALID, "%s%s: the function returned %s, and its signature says %s", function, text,
                        tt_rpc_kind_name(value->kind), type_name(&signature->result));
    return TT_OK;
}

/* ---- the table */

static struct {
    tt__rpc_function *sorted; /* by name */
    int count, room;
    bool closed;
    tt_status wrong; /* the first error of tt_rpc_register_at_load(), and its text */
    char why[512];
    pthread_mutex_t lock;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int compare_function_names(const char *name, size_t bytes, const char *other) {
    size_t n = strlen(other);
    int order = memcmp(name, other, bytes < n ? bytes : n);
    return order ? order : bytes < n ? -1 : bytes > n;
}

/* Return where a name is, or belongs; *there: whether it is. */
static int function_place(const char *name, size_t bytes, bool *there) {
    int low = 0, high = table.count;
    *there = false;
    while (low < high && !*there) {
        int middle = (low + high) / 2, order = compare_function_names(name, bytes, table.sorted[middle].name);
        *there = !order;
        if (order <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return *there ? high : low;
}

const tt__rpc_function *tt__function_find(const char *name, size_t bytes) {
    bool there;
    int at = function_place(name, bytes, &there);
    return there ? &table.sorted[at] : NULL;
}

int tt__function_count(void) { return table.count; }

const tt__rpc_function *tt__function_at(int number) { return &table.sorted[number]; }

int tt__function_number(const tt__rpc_function *function) { return (int)(function - table.sorted); }

static tt_status check_function_name(const char *name) {
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_.:", name[i]))
            n = 0;
    if (!n || n >= TT__RPC_FUNCTION_NAME)
        return tt__fail(TT_ERR_INVALID,
                        "expected the name of a function to be letters, digits, _ . or :, 1 to %d bytes, got \"%.80s\"",
                        TT__RPC_FUNCTION_NAME - 1, name ? name : "");
    return TT_OK;
}

static tt_status function_room(void) {
    if (table.count < table.room)
        return TT_OK;
    int room = table.room ? 2 * table.room : 16;
    tt__rpc_function *sorted = realloc(table.sorted, (size_t)room * sizeof *sorted);
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "no memory for %d functions", room);
    table.sorted = sorted;
    table.room = room;
    return TT_OK;
}

static tt_status add_function(const tt__rpc_function *function) {
    bool there;
    int at = function_place(function->name, strlen(function->name), &there);
    if (table.closed)
        return tt__fail(TT_ERR_STATE,
                        "the function %s is registered after the first tt_rpc_init(): workers have "
                        "compared their functions already",
                        function->name);
    if (there)
        return tt__fail(TT_ERR_STATE, "two functions are registered as %s", function->name);
    TT__TRY(function_room());
    memmove(&table.sorted[at + 1], &table.sorted[at], (size_t)(table.count - at) * sizeof *table.sorted);
    table.sorted[at] = *function;
    table.count++;
    return TT_OK;
}

tt_status tt_rpc_register(const char *name, const char *signature, tt_rpc_fn fn) {
    tt__rpc_function function = {.name = name, .text = signature, .fn = fn};
    TT__TRY(check_function_name(name));
    if (!fn || !signature)
        return tt__fail(TT_ERR_INVALID, "tt_rpc_register: the %s of %s is NULL", fn ? "signature" : "function", name);
    if (signature_read(&function.signature, signature))
        return tt__fail_prefix("the function %s", name);
    pthread_mutex_lock(&table.lock);
    tt_status status = add_function(&function);
    pthread_mutex_unlock(&table.lock);
    return status;
}

void tt_rpc_register_at_load(const char *name, const char *signature, tt_rpc_fn fn) {
    tt_status status = tt_rpc_register(name, signature, fn);
    if (status && !table.wrong) {
        table.wrong = status;
        snprintf(table.why, sizeof table.why, "%s", tt_last_error());
    }
    tt_clear_error();
}

tt_status tt__functions_close(void) {
    pthread_mutex_lock(&table.lock);
    table.closed = true;
    pthread_mutex_unlock(&table.lock);
    return table.wrong ? tt__fail(table.wrong, "%s", table.why) : TT_OK;
}

/* Is the function Tutti's own? Workers may differ in those, as some have no libtutti, so they are not compared. */
static bool is_of_library(const char *name) { return !strncmp(name, "tutti.", 6); }

tt_status tt__function_missing(const char *worker, const char *name, size_t bytes) {
    char known[600] = "";
    size_t n = 0;
    for (int i = 0; i < table.count && n < sizeof known - TT__RPC_FUNCTION_NAME - 8; i++)
        if (!is_of_library(table.sorted[i].name))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", table.sorted[i].name);
    return tt__fail(TT_ERR_NOT_FOUND, "worker %s has no function %.*s; it has %s", worker,
                    (int)(bytes < TT__RPC_FUNCTION_NAME ? bytes : TT__RPC_FUNCTION_NAME), name, n ? known : "none");
}

/* ---- comparing with another worker's */

uint64_t tt__rpc_functions_hash(void) {
    uint64_t hash = TT__FNV;
    for (int i = 0; i < table.count; i++) {
        if (is_of_library(table.sorted[i].name))
            continue;
        hash = tt__fnv_text(tt__fnv_text(hash, table.sorted[i].name), table.sorted[i].text);
    }
    return hash;
}

char *tt__rpc_functions_text(void) {
    size_t size = 1, n = 0;
    for (int i = 0; i < table.count; i++)
        size += strlen(table.sorted[i].name) + strlen(table.sorted[i].text) + 2;
    char *text = malloc(size);
    if (!text)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for the names of %d functions", table.count);
    *text = '\0';
    for (int i = 0; i < table.count; i++)
        if (!is_of_library(table.sorted[i].name))
            n += (size_t)snprintf(text + n, size - n, "%s %s\n", table.sorted[i].name, table.sorted[i].text);
    return text;
}

static tt_status fail_lacks(const char *lacks, const char *has, const char *function, int bytes) {
    return tt__fail(TT_ERR_MISMATCH,
                    "worker %s has no function %.*s, which worker %s has: all workers register the same functions, "
                    "unless tt_rpc_init() is told .other_functions",
                    lacks, bytes, function, has);
}

tt_status tt__rpc_functions_compare(const char *name, const char *other, const char *text) {
    int own = 0;
    while (own < table.count || *text) {
        if (own < table.count && is_of_library(table.sorted[own].name)) {
            own++;
            continue;
        }
        const char *end = strchr(text, '\n'), *blank = strchr(text, ' ');
        size_t line = end ? (size_t)(end - text) : strlen(text);
        size_t bytes = blank && (size_t)(blank - text) < line ? (size_t)(blank - text) : line;
        int order = own == table.count ? -1 : !*text ? 1 : compare_function_names(text, bytes, table.sorted[own].name);
        if (order < 0)
            return fail_lacks(name, other, text, (int)bytes);
        const tt__rpc_function *mine = &table.sorted[own];
        if (order > 0)
            return fail_lacks(other, name, mine->name, (int)strlen(mine->name));
        size_t signature = line - bytes - (bytes < line);
        if (strlen(mine->text) != signature || strncmp(mine->text, text + line - signature, signature) != 0)
            return tt__fail(TT_ERR_MISMATCH, "the function %s is \"%s\" on worker %s, and \"%.*s\" on worker %s",
                            mine->name, mine->text, name, (int)signature, text + line - signature, other);
        own++;
        text += line + (end != NULL);
    }
    return TT_OK;
}

bool tt__rpc_is_worker_name(const char *name) {
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-:.", name[i]))
            n = 0;
    return n && n < TT__RPC_NAME_SIZE;
}

tt_status tt__rpc_check_worker_name(const char *name) {
    if (!tt__rpc_is_worker_name(name))
        return tt__fail(TT_ERR_INVALID,
                        "expected a worker's name to be letters, digits, _ - : or ., 1 to %d bytes, got \"%.140s\"",
                        TT__RPC_NAME_SIZE - 1, name ? name : "");
    return TT_OK;
}
