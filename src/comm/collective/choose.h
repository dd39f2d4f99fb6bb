/* Which algorithm serves a call on messages: the first line of a table that fits.
 *
 * The table is text, one rule a line, "#" begins a comment:
 *
 *   # op         ranks  hosts  bytes  algorithm
 *   all_reduce   2      *      *      direct
 *   all_reduce   3-8    *      32K    direct          up to 32 KiB
 *   all_reduce   *      2-     *      hierarchical    two hosts or more
 *   all_reduce   *      *      *      slices
 *
 * ranks, hosts: a number, "A-B", "A-", or "*". bytes: of the call at most so many (K, M, G), or "*": of the buffer that
 * is reduced or broadcast; of one block where every rank has its own (of uneven ones the average; of all_to_all_v 0,
 * since no rank knows all). A line whose algorithm does not serve the call (hierarchical on one host) is passed over;
 * so algorithms on shared memory and on messages may both be named. An algorithm with an order of its own (ring of
 * all_reduce) is used only by a line that names it.
 *
 * Rank 0's table holds for all ranks: $TT_TUNING, else $XDG_CONFIG_HOME/tutti/tuning (~/.config/tutti/tuning), else the
 * one built in; before its lines come those of .algorithms or $TT_ALGORITHMS ("all_reduce=ring,broadcast=chain"), for
 * all ranks, hosts and bytes. Where all ranks are on one host no file is read, for a quick start: there only
 * .algorithms and $TT_ALGORITHMS count. */
#ifndef TT_COMM_COLLECTIVE_CHOOSE_H
#define TT_COMM_COLLECTIVE_CHOOSE_H

#include "comm/native_group.h"
#include "comm/op.h"
#include "comm/work.h"

/* All algorithms. On shared memory the first that serves is taken. */
extern const tt__algorithm *const tt__algorithms[];
extern const size_t tt__algorithm_count;

enum { TT__RULES = 512 };

typedef struct tt__span_of {
    uint32_t from, to;
} tt__span_of;

typedef struct tt__algorithm_rule {
    const struct tt__algorithm *algorithm; /* which also has the op */
    tt__span_of ranks, hosts;
    uint64_t bytes; /* at most */
} tt__algorithm_rule;

typedef struct tt__tuning {
    size_t count, on_shared_memory; /* rules; how many of them are for shared memory */
    tt__algorithm_rule rules[TT__RULES];
} tt__tuning;

/* Rank 0: the table's text, forced algorithms first. `algorithms`: the option, or NULL. *text is the caller's, to be
 * freed. Errors: TT_ERR_INVALID an algorithm that does not exist (the text lists those that do), a line that is not
 * understood (file, line, what was expected); TT_ERR_IO $TT_TUNING can't be read. */
tt_status tt__tuning_text(const char *algorithms, char **text);

/* Write the path of the user's table; false if neither $XDG_CONFIG_HOME nor $HOME is set. */
bool tt__tuning_users_path(char *path, size_t size);

/* Read a table. `source` names it in errors. */
tt_status tt__tuning_parse(tt__tuning *tuning, const char *text, const char *source);

/* Read a table of forced algorithms alone, "all_reduce=staged,broadcast=chain". Errors as of tt__tuning_text(). */
tt_status tt__tuning_forced(tt__tuning *tuning, const char *algorithms);

/* Choose the algorithm for a call; NULL: messages don't serve this op. Without a table: the first that serves. */
const struct tt__algorithm *tt__choose_by(const tt__tuning *tuning, const tt_group *group, const tt_call *call);

/* Choose the algorithm for a work that all ranks have agreed on, or that goes by messages; the same on all ranks. NULL:
 * TT_ERR_UNSUPPORTED, recorded. */
const tt__algorithm *tt__choose(const tt_work *work);

/* Choose the all_reduce for a work on messages whose algorithm packs several buffers into one. NULL: any other work. */
const tt__algorithm *tt__choose_packed(const tt_work *work);

/* Count the hosts of a group's ranks. */
uint32_t tt__hosts_of(const tt_group *group);

/* Return the table that is built in. */
const char *tt__tuning_default(void);

/* Return an algorithm's number in the table, from 1, for the recorder; the name for a number, "?" for none. */
uint8_t tt__algorithm_number(const tt__algorithm *algorithm);
const char *tt__algorithm_name(uint8_t number);

/* Set what the work publishes with its arrival word, by the same rule on all ranks. room: TT__INLINE_MAX bytes,
 * aligned, where a payload may be put together; the caller keeps them until the call is published. */
void tt__offer_of(const tt_work *work, tt__offer *offer, void *room);

#endif
