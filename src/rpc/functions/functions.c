/* The table of registered functions. It does not change after the first worker is made, and is read without a lock
 * then. */
#include "rpc/functions/functions.h"

#include "base/error.h"
#include "base/hash.h"
#include "rpc/workers/network.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (tt__signature_read(&function.signature, signature))
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
