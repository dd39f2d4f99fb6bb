/* Agreement on texts. Each rank's length and hash are gathered first; the texts themselves only if these differ. */
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/group.h"
#include "comm/rankset.h"

/* Of a rank's texts, joined, each with its NUL. */
typedef struct summary {
    int64_t bytes;
    int64_t hash;
} summary;

enum { SUMMARY_WORDS = sizeof(summary) / sizeof(int64_t) };

static summary summarise_texts(const char *const *texts, size_t count) {
    uint64_t hash = TT__FNV;
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        hash = tt__fnv_text(hash, texts[i]);
        bytes += (int64_t)strlen(texts[i]) + 1;
    }
    return (summary){.bytes = bytes, .hash = (int64_t)hash};
}

/* Return the text that begins at `at` in a list of `size` bytes, or a text for the list's end. */
static const char *text_at(const char *list, size_t at, size_t size) { return at < size ? list + at : "nothing more"; }

/* Find where the lists differ. Both are walked while they are equal, so that one position serves both. */
static tt_status report_difference(const char *who, int rank, const char *theirs, size_t their_size, const char *zeros,
                                   size_t zero_size) {
    size_t at = 0;
    while (at < their_size && at < zero_size && strcmp(theirs + at, zeros + at) == 0)
        at += strlen(zeros + at) + 1;
    return tt__fail(TT_ERR_MISMATCH, "%s: rank %d has %s where rank 0 has %s", who, rank,
                    text_at(theirs, at, their_size), text_at(zeros, at, zero_size));
}

/* The number of agreements that this thread has begun, in any group: see tt__joint_call. */
static _Thread_local uint64_t agreements_begun;

/* Abort the group, as others wait in the agreement. */
static tt_status no_memory_to_agree(tt_group *group, const char *who, int world) {
    tt__fail(TT_ERR_MEMORY, "%s: no memory to compare with %d ranks", who, world);
    tt__abort_with_error(group);
    return TT_ERR_MEMORY;
}

/* Gather all ranks' texts, `width` bytes a rank, and report the first rank that differs. */
static tt_status explain_difference(tt_group *group, const char *who, const char *const *texts, size_t count,
                                    const summary *summaries, int64_t width) {
    int world = tt_get_world_size(group);
    char *all = calloc(1, (size_t)world * (size_t)width + 1);
    if (!all)
        return no_memory_to_agree(group, who, world);
    char *mine = all + (size_t)tt_get_rank(group) * (size_t)width, *to = mine;
    for (size_t i = 0; i < count; i++)
        to = stpcpy(to, texts[i]) + 1;
    tt_status status = tt__group_gather(group, mine, all, (size_t)width, TT_U8, who);
    for (int r = 1; r < world && !status; r++)
        if (memcmp(&summaries[r], &summaries[0], sizeof *summaries) != 0)
            status = report_difference(who, r, all + (size_t)r * (size_t)width, (size_t)summaries[r].bytes, all,
                                       (size_t)summaries[0].bytes);
    free(all);
    return status;
}

tt_status tt__agree_on(tt_group *group, const char *who, const char *const *texts, size_t count) {
    int world = tt_get_world_size(group);
    summary mine = summarise_texts(texts, count), *all = calloc((size_t)world, sizeof *all);
    agreements_begun++;
    if (!all)
        return no_memory_to_agree(group, who, world);
    tt_status status = tt__group_gather(group, &mine, all, SUMMARY_WORDS, TT_I64, who);
    int64_t width = 0;
    bool same = true;
    for (int r = 0; r < world && !status; r++) {
        same = same && memcmp(&all[r], &all[0], sizeof *all) == 0;
        width = all[r].bytes > width ? all[r].bytes : width;
    }
    if (!status && !same)
        status = explain_difference(group, who, texts, count, all, width);
    free(all);
    return status;
}

/* *word: the largest of all ranks, where the back end takes nothing of the host. Takes no memory. */
static tt_status most_of_words(tt_group *group, int64_t *word, const char *who) {
    int64_t all[TT__MAX_RANKS];
    TT__TRY(tt__group_gather(group, word, all, 1, TT_I64, who));
    for (int r = 0; r < tt_get_world_size(group); r++)
        *word = all[r] > *word ? all[r] : *word;
    return TT_OK;
}

tt_status tt__agree_on_success(tt_group *group, const char *who, tt_status own) {
    const int world = tt_get_world_size(group);
    int64_t failed = own ? world - tt_get_rank(group) : 0; /* most, over ranks: the first that failed */
    tt__saved_error saved;
    tt__error_save(&saved);
    tt_status status =
        tt__group_takes(group, TT_DEVICE_CPU)
            ? tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, group, &failed, 1, TT_I64, TT_MAX, .file = who))
            : most_of_words(group, &failed, who);
    if (own)
        tt__error_restore(&saved);
    if (own || status || !failed)
        return own ? own : status;
    return tt__fail(TT_ERR_STATE, "%s: rank %d failed; its error says why", who, world - (int)failed);
}

/* ---- joint calls */

void tt__abort_with_error(tt_group *group) {
    tt__saved_error failure;
    if (!group || tt_get_world_size(group) == 1 || tt__group_has_ended(group)) /* its first error says more than ours */
        return;
    tt__error_save(&failure);
    tt_group_abort(group, failure.text);
    tt__error_restore(&failure);
}

tt__joint_call tt__joint_call_begin(tt_group *group, const char *who) {
    return (tt__joint_call){.group = group, .who = who, .agreements = agreements_begun};
}

static void tell_refusal(const tt__joint_call *call) {
    char text[64 + TT__ERROR_TEXT_SIZE];
    tt__saved_error failure;
    tt__error_save(&failure);
    snprintf(text, sizeof text, "a call that it refuses: %s", failure.text);
    tt_ignore(tt__agree_on(call->group, call->who, (const char *const[]){text}, 1));
    tt__error_restore(&failure);
}

tt_status tt__joint_call_end(const tt__joint_call *call, tt_status status) {
    if (!status || !call->group)
        return status;
    if (agreements_begun == call->agreements)
        tell_refusal(call);
    else if (status == TT_ERR_MEMORY)
        tt__abort_with_error(call->group);
    return status;
}
