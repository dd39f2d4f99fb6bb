#include "cli/visible_devices.h"

#include <stdlib.h>
#include <string.h>

/* A number may be followed by other text, as strtol() reads it. */
static bool find_number(tt__visible_entry *entry, int devices) {
    char *end;
    long number = strtol(entry->text, &end, 10);
    entry->device = (int)number;
    return end > entry->text && end <= entry->text + entry->length && number >= 0 && number < devices;
}

static bool find_uuid(tt__visible_entry *entry, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user) {
    int found = 0;
    for (int i = 0; i < devices && uuid; i++)
        if (!strncmp(uuid(user, i), entry->text, entry->length)) {
            entry->device = i;
            found++;
        }
    return found == 1 || !uuid;
}

static bool is_same_entry(const tt__visible_entry *a, const tt__visible_entry *b) {
    return a->device >= 0 ? a->device == b->device : a->length == b->length && !strncmp(a->text, b->text, a->length);
}

static const char *kind_of(const char *list) {
    return !strncmp(list, "GPU-", 4) ? "GPU-" : !strncmp(list, "MIG-", 4) ? "MIG-" : "";
}

void tt__visible_read(tt__visible *out, const char *list, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user) {
    const char *kind = kind_of(list);
    memset(out, 0, sizeof *out);
    for (const char *at = list; out->count < TT__VISIBLE_MAX; at += strcspn(at, ",") + 1) {
        tt__visible_entry entry = {.text = at, .length = strcspn(at, ","), .device = -1};
        bool is_kind = !strncmp(at, kind, strlen(kind));
        bool is_there = !*kind         ? find_number(&entry, devices)
                        : *kind == 'M' ? is_kind
                                       : is_kind && find_uuid(&entry, devices, uuid, user);
        if (!is_there) {
            out->bad = entry;
            return;
        }
        for (int i = 0; i < out->count; i++)
            out->repeats |= is_same_entry(&entry, &out->list[i]);
        out->list[out->count++] = entry;
        if (!at[entry.length])
            return;
    }
}
