/* Messages of the library between ranks, in memory of the host. If the back end takes no such memory, the control group
 * carries them, by the exchanges that also make groups. */
#include "base/error.h"
#include "comm/backend/plugin.h"
#include "comm/native/native.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 48 }; /* of a rank in one exchange */

bool tt__group_takes(const tt_group *group, tt_device_type device) {
    unsigned devices = group && group->engine ? group->engine->devices : 0;
    return (devices ? devices : TT_DEVICE_BIT(TT_DEVICE_CPU)) & TT_DEVICE_BIT(device);
}

/* Complete the agreements on earlier calls: on all ranks they come before the control group's exchanges. */
static tt_status words_begin(tt_group *group, const char *who) {
    tt__plugin *plugin = tt__plugin_of(group);
    TT__TRY(tt__group_usable(group));
    if (group->size > 1 && !plugin->control)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: back end %s moves nothing on the host, and nothing else joins the ranks: TT_BACKEND_CHECK "
                        "is 0, or they found each other without a store",
                        who, plugin->table->name);
    tt__plugin_lock(plugin);
    tt_status status = tt__plugin_drain(group, group->timeout_ms);
    tt__plugin_unlock(plugin);
    return status;
}

/* all: (size, count) */
static tt_status exchange_words(tt_group *group, const void *mine, size_t count, void *all, const char *who) {
    tt__plugin *plugin = tt__plugin_of(group);
    const tt_call call = {.op = TT_OP_SPLIT, .dtype = TT_I64, .timeout_ms = group->timeout_ms, .file = who};
    if (group->size == 1) {
        memcpy(all, mine, count);
        return TT_OK;
    }
    tt_status status = tt__exchange(plugin->control, &call, mine, count, all);
    if (!status)
        return TT_OK;
    tt__plugin_lock(plugin);
    status = tt__plugin_fail(group);
    tt__plugin_unlock(plugin);
    return status;
}

static size_t words_at(size_t done, size_t bytes) { return bytes - done < WORD_BYTES ? bytes - done : WORD_BYTES; }

static unsigned char *words_alloc(const tt_group *group, const char *who) {
    unsigned char *words = malloc((size_t)group->size * WORD_BYTES);
    if (!words)
        tt__fail(TT_ERR_MEMORY, "%s: no memory for words of %d ranks", who, group->size);
    return words;
}

static tt_status gather_words(tt_group *group, const void *mine, void *all, size_t bytes, const char *who) {
    unsigned char *words = words_alloc(group, who);
    tt_status status = words ? words_begin(group, who) : TT_ERR_MEMORY;
    for (size_t done = 0, n; !status && done < bytes; done += n) {
        n = words_at(done, bytes);
        status = exchange_words(group, (const char *)mine + done, n, words, who);
        for (size_t r = 0; !status && r < (size_t)group->size; r++)
            memcpy((char *)all + r * bytes + done, words + r * n, n);
    }
    free(words);
    return status;
}

tt_status tt__group_gather(tt_group *group, const void *mine, void *all, size_t count, tt_dtype dtype,
                           const char *who) {
    if (!group || tt__group_takes(group, TT_DEVICE_CPU))
        return tt_all_gather_with(TT_ARGS(tt_all_gather_args, group, mine, all, (int64_t)count, dtype, .file = who));
    return gather_words(group, mine, all, count * tt_dtype_size(dtype), who);
}

/* a = the greater of a and b; NaN is the greatest */
static void keep_greater(void *a, const void *b, size_t count, tt_dtype dtype) {
    for (size_t i = 0; i < count; i++)
        if (dtype == TT_I64 && ((const int64_t *)b)[i] > ((int64_t *)a)[i])
            ((int64_t *)a)[i] = ((const int64_t *)b)[i];
        else if (dtype == TT_F64 && !(((const double *)b)[i] <= ((double *)a)[i]))
            ((double *)a)[i] = ((const double *)b)[i];
}

tt_status tt__group_most(tt_group *group, void *values, size_t count, tt_dtype dtype, const char *who) {
    if (!group || tt__group_takes(group, TT_DEVICE_CPU))
        return tt_all_reduce_with(
            TT_ARGS(tt_all_reduce_args, group, values, (int64_t)count, dtype, TT_MAX, .file = who));
    const size_t bytes = count * tt_dtype_size(dtype);
    unsigned char *all = malloc((size_t)group->size * bytes);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for words of %d ranks", who, group->size);
    tt_status status = gather_words(group, values, all, bytes, who);
    for (size_t r = 0; !status && r < (size_t)group->size; r++)
        keep_greater(values, all + r * bytes, count, dtype);
    free(all);
    return status;
}

tt_status tt__group_take_first(tt_group *group, void *bytes, size_t count, const char *who) {
    if (!group || tt__group_takes(group, TT_DEVICE_CPU))
        return tt_broadcast_with(
            TT_ARGS(tt_broadcast_args, group, bytes, (int64_t)count, TT_U8, .root = 0, .file = who));
    unsigned char *words = words_alloc(group, who);
    tt_status status = words ? words_begin(group, who) : TT_ERR_MEMORY;
    for (size_t done = 0, n; !status && done < count; done += n) {
        n = words_at(done, count);
        status = exchange_words(group, (char *)bytes + done, n, words, who);
        if (!status)
            memcpy((char *)bytes + done, words, n);
    }
    free(words);
    return status;
}
