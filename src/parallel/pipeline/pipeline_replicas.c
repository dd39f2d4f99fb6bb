/* Compares the options of a pipeline with those of its replicas. A rank meets its counterparts in its data group. A
 * counterpart that was given no data group never comes. So the ranks of a pipeline look together, again and again,
 * whether all their counterparts have come, or one has failed. */
#include "base/error.h"
#include "base/process/waits.h"
#include "parallel/pipeline/pipeline_own.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char replicas_who[] = "tt_pipeline_new: .data_group";

/* The states of a rank's counterparts. */
enum { AWAITED, HAVE_COME, HAVE_FAILED, MET_STATES };

/* An all_gather in a data group, which completes when all counterparts have come to it. */
typedef struct meeting {
    tt_group *group;
    int32_t own;  /* this rank's pipeline has failed already */
    int32_t *all; /* (world): the same of each counterpart */
    tt_work *work;
} meeting;

static tt_status begin_meeting(meeting *m, tt_group *group, bool failed) {
    *m = (meeting){.group = group, .own = failed};
    m->all = calloc((size_t)tt_get_world_size(group), sizeof *m->all);
    tt_status status = m->all ? tt_all_gather_with(TT_ARGS(tt_all_gather_args, group, &m->own, m->all, 1, TT_I32,
                                                           .work = &m->work, .file = replicas_who))
                              : tt__fail(TT_ERR_MEMORY, "%s: no memory to meet other pipelines", replicas_who);
    if (status == TT_ERR_MEMORY)
        tt__abort_with_error(group);
    return status;
}

static int state_of_meeting(const meeting *m) {
    if (!tt_work_is_completed(m->work))
        return AWAITED;
    int state = HAVE_COME;
    for (int r = 0; r < tt_get_world_size(m->group); r++)
        state = m->all[r] ? HAVE_FAILED : state;
    return state;
}

/* Pause between two looks, longer after many: the counterparts may come much later. */
static void pause_between_looks(int look) {
    if (look >= 4)
        tt__sleep_us(look < 50 ? 200 : 20000);
}

/* Look, together with all ranks of the pipeline, until all counterparts have come, or one has failed. states[s]: the
 * counterparts of some rank are in state s. */
static tt_status look_together(tt_group *pipeline, const meeting *m, bool *states) {
    int64_t bits = 0;
    for (int look = 0; look == 0 || bits == 1 << AWAITED || bits == (1 << AWAITED | 1 << HAVE_COME); look++) {
        pause_between_looks(look);
        bits = 1 << state_of_meeting(m);
        TT__TRY(tt_all_reduce_with(
            TT_ARGS(tt_all_reduce_args, pipeline, &bits, 1, TT_I64, TT_BOR, .file = "the start of a pipeline")));
    }
    for (int s = 0; s < MET_STATES; s++)
        states[s] = bits >> s & 1;
    return TT_OK;
}

/* Finish a meeting. `met`: the status of its beginning. *alone: this rank's counterparts have not come, and it stopped
 * waiting as another rank's have failed. */
static tt_status meet_replicas(tt_group *pipeline, meeting *m, tt_status met, bool *alone) {
    bool states[MET_STATES] = {false};
    *alone = false;
    TT__TRY(met);
    tt_status status = m->own ? TT_OK : look_together(pipeline, m, states);
    *alone = !status && !m->own && states[AWAITED] && state_of_meeting(m) == AWAITED;
    if (status)
        tt__abort_with_error(m->group);
    else if (*alone)
        tt_group_abort(m->group, "a pipeline beside this one could not be made");
    tt_status ended = m->work ? tt_work_wait(m->work) : TT_OK;
    tt_work_free(m->work);
    return status ? status : *alone ? TT_OK : ended;
}

static tt_status compare_replicas(const tt_pipeline_new_args *a, const char *const *texts, size_t count) {
    char place[64];
    const char **all = calloc(count + 1, sizeof *all);
    const tt__joint_call call = tt__joint_call_begin(a->data_group, replicas_who);
    if (!all)
        return tt__joint_call_end(&call, tt__fail(TT_ERR_MEMORY, "%s: no memory to compare", replicas_who));
    snprintf(place, sizeof place, "rank %d of a pipeline of %d", tt_get_rank(a->group), tt_get_world_size(a->group));
    all[0] = place;
    memcpy(all + 1, texts, count * sizeof *all);
    tt_status status = tt__agree_on(a->data_group, replicas_who, all, count + 1);
    free(all);
    return status;
}

/* Take part in the counterparts' comparison, with the failure of this pipeline in place of options. */
static void tell_pipe_differs(tt_group *group) {
    char text[TT__ERROR_TEXT_SIZE + 64];
    tt__saved_error saved;
    tt__error_save(&saved);
    snprintf(text, sizeof text, "options that its pipeline's ranks don't agree on (%s)", saved.text);
    tt_ignore(tt__agree_on(group, replicas_who, (const char *const[]){text}, 1));
    tt__error_restore(&saved);
}

tt_status tt__pipeline_agree_with_replicas(const tt_pipeline_new_args *a, const char *const *texts, size_t count,
                                           tt_status status) {
    meeting m;
    tt__saved_error own;
    bool alone = false;
    tt__error_save(&own);
    tt_status met = meet_replicas(a->group, &m, begin_meeting(&m, a->data_group, status != TT_OK), &alone);
    free(m.all);
    tt__error_restore(&own);
    if (status) {
        if (!met)
            tell_pipe_differs(a->data_group);
        return status;
    }
    return met || alone ? met : compare_replicas(a, texts, count);
}
