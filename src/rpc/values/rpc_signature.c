#include "rpc/values/rpc_signature.h"

#include "base/error.h"

#include <ctype.h>
#include <string.h>

/* What is read, and where reading stands. */
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

tt_status tt__signature_read(tt__rpc_signature *out, const char *whole) {
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

/* ---- checking */

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
