#include "store/etcd/json_scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

/* A place in a text. After a failure `at` is NULL, and stays so. */
typedef struct place {
    const uint8_t *at, *end;
} place;

static place place_of(tt__span text) { return (place){text.data, text.data ? text.data + text.size : NULL}; }

static bool is_space(uint8_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_space(place *p) {
    while (p->at && p->at < p->end && is_space(*p->at))
        p->at++;
}

/* Skip this character, if it comes next. */
static bool json_take(place *p, char c) {
    if (!p->at || p->at == p->end || *p->at != (uint8_t)c)
        return false;
    p->at++;
    return true;
}

static void json_need(place *p, char c) {
    if (!json_take(p, c))
        p->at = NULL;
}

static void skip_string(place *p) {
    json_need(p, '"');
    while (p->at && p->at < p->end && *p->at != '"') {
        if (*p->at < 0x20 || (*p->at == '\\' && p->end - p->at < 2))
            p->at = NULL;
        else
            p->at += *p->at == '\\' ? 2 : 1;
    }
    json_need(p, '"');
}

static void skip_word(place *p) {
    const uint8_t *from = p->at;
    while (p->at < p->end && (strchr("+-.", *p->at) ? *p->at != 0
                                                    : (*p->at >= '0' && *p->at <= '9') ||
                                                          ((*p->at | 0x20) >= 'a' && (*p->at | 0x20) <= 'z')))
        p->at++;
    if (p->at == from)
        p->at = NULL;
}

static void skip_value(place *p, int depth);

/* Skip the inside of an object or array, and its end. */
static void skip_members(place *p, char end, int depth) {
    skip_space(p);
    if (json_take(p, end))
        return;
    do {
        if (end == '}') {
            skip_space(p);
            skip_string(p);
            skip_space(p);
            json_need(p, ':');
        }
        skip_value(p, depth + 1);
        skip_space(p);
    } while (json_take(p, ','));
    json_need(p, end);
}

static void skip_value(place *p, int depth) {
    skip_space(p);
    if (!p->at || p->at == p->end || depth > MAX_DEPTH)
        p->at = NULL;
    else if (*p->at == '"')
        skip_string(p);
    else if (json_take(p, '{'))
        skip_members(p, '}', depth);
    else if (json_take(p, '['))
        skip_members(p, ']', depth);
    else
        skip_word(p);
}

size_t tt__json_size(tt__span text) {
    place p = place_of(text);
    if (text.size)
        skip_value(&p, 0);
    return text.size && p.at ? (size_t)(p.at - text.data) : 0;
}

/* Return what skip_value() skips, without white space; an empty span after a failure. */
static tt__span take_value(place *p) {
    skip_space(p);
    const uint8_t *from = p->at;
    skip_value(p, 0);
    return p->at ? (tt__span){from, (size_t)(p->at - from)} : (tt__span){NULL, 0};
}

bool tt__json_member(tt__span object, const char *name, tt__span *value) {
    place p = place_of(object);
    size_t length = strlen(name);
    if (!object.size)
        return false;
    skip_space(&p);
    if (!json_take(&p, '{'))
        return false;
    do {
        skip_space(&p);
        if (!p.at || p.at == p.end || *p.at != '"')
            return false;
        tt__span key = take_value(&p);
        skip_space(&p);
        json_need(&p, ':');
        *value = take_value(&p);
        if (p.at && key.size == length + 2 && !memcmp(key.data + 1, name, length))
            return true;
        skip_space(&p);
    } while (json_take(&p, ','));
    return false;
}

bool tt__json_item(tt__span *rest, tt__span *item) {
    place p = place_of(*rest);
    if (!rest->size)
        return false;
    skip_space(&p);
    if (!json_take(&p, '[') && !json_take(&p, ','))
        return false;
    skip_space(&p);
    if (!p.at || p.at == p.end || *p.at == ']')
        return false;
    *item = take_value(&p);
    *rest = p.at ? (tt__span){p.at, (size_t)(p.end - p.at)} : (tt__span){NULL, 0};
    return p.at != NULL;
}

bool tt__json_string(tt__span value, tt__span *text) {
    if (value.size < 2 || *value.data != '"')
        return false;
    *text = (tt__span){value.data + 1, value.size - 2};
    return true;
}

bool tt__json_text(tt__span value, char *text, size_t size) {
    tt__span raw;
    size_t n = 0;
    if (!tt__json_string(value, &raw))
        return false;
    for (size_t i = 0; i < raw.size && n + 1 < size; i++) {
        uint8_t c = raw.data[i];
        if (c == '\\' && i + 1 < raw.size) {
            c = raw.data[++i];
            if (c == 'u') { /* a code point that JSON hides from HTML, such as <; others don't matter here */
                char digits[5] = "";
                for (size_t k = 0; k < 4 && i + 1 < raw.size; k++)
                    digits[k] = (char)raw.data[++i];
                long code = strtol(digits, NULL, 16);
                c = code > 0x20 && code < 0x7f ? (uint8_t)code : '?';
            } else if (c != '"' && c != '\\' && c != '/') {
                c = ' ';
            }
        }
        text[n++] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    text[n] = '\0';
    return true;
}

bool tt__json_i64(tt__span value, int64_t *number) {
    char digits[24], *end;
    tt__span text = value;
    (void)tt__json_string(value, &text);
    if (!text.size || text.size >= sizeof digits)
        return false;
    memcpy(digits, text.data, text.size);
    digits[text.size] = '\0';
    errno = 0;
    long long n = strtoll(digits, &end, 10);
    if (end == digits || *end || errno)
        return false;
    *number = n;
    return true;
}

bool tt__json_is_true(tt__span value) { return value.size == 4 && !memcmp(value.data, "true", 4); }
