/* Which NVIDIA GPUs programs get here: what CUDA_VISIBLE_DEVICES names, and questions to the driver. */
#ifndef TT_CLI_GPUS_H
#define TT_CLI_GPUS_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Let a child process call `ask`: libraries that this loads do not stay in this process. text := what `ask` wrote to
 * `to`, as far as there is room. `what` ("NVIDIA's driver") names in errors what was asked. Waits at most a minute.
 * Errors: TT_ERR_SYSTEM no process could be made, or it crashed; TT_ERR_TIMEOUT. */
tt_status tt__ask_child(const char *what, void (*ask)(FILE *to), char *text, size_t size);

enum { TT__VISIBLE_MAX = 64 };

typedef struct tt__visible_entry {
    const char *text;
    size_t length;
    int device; /* -1: a part of a GPU (MIG), or one whose UUID is not known */
} tt__visible_entry;

typedef struct tt__visible {
    int count;
    tt__visible_entry list[TT__VISIBLE_MAX];
    tt__visible_entry bad; /* the first one that means no device, which ends the list; .text NULL: there is none */
    bool repeats;          /* a device comes twice: CUDA sees none */
} tt__visible;

/* Read a value of CUDA_VISIBLE_DEVICES as CUDA does. Its first entry says what all are: numbers below `devices`; UUIDs,
 * or beginnings that only one has; or names of parts of GPUs (MIG). uuid(user, i) returns that of device i; uuid NULL:
 * every UUID is taken as it is. */
void tt__visible_read(tt__visible *out, const char *list, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user);

#endif
