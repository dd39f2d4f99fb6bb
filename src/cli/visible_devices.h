/* CUDA_VISIBLE_DEVICES, as CUDA reads it: where no driver can be asked. */
#ifndef TT_CLI_VISIBLE_DEVICES_H
#define TT_CLI_VISIBLE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

enum { TT__VISIBLE_MAX = 64 };

typedef struct tt__visible_entry {
    const char *text;
    size_t length;
    int device; /* -1: a part of a GPU (MIG), or one whose UUID is not known */
} tt__visible_entry;

typedef struct tt__visible {
    int count;
    tt__visible_entry list[TT__VISIBLE_MAX];
    tt__visible_entry bad; /* where the list ends, as this means no device; .text is NULL: it has no such entry */
    bool repeats;          /* a device comes again: CUDA sees none */
} tt__visible;

/* Read a list. Its first entry says what all are: numbers below `devices`, UUIDs or what one UUID alone begins with, or
 * names of parts of GPUs (MIG). uuid(user, i) is that of device i; NULL: what is written as one is taken for one. */
void tt__visible_read(tt__visible *out, const char *list, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user);

#endif
