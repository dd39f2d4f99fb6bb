/* The rounds of a job (tutti/elastic.h), for programs whose groups are another library's: PyTorch's. */
#ifndef TT_ELASTIC_JOB_ROUNDS_H
#define TT_ELASTIC_JOB_ROUNDS_H

#include "base/export.h"

#include <tutti/base.h>

#include <stdbool.h>

TT_BEGIN_DECLS

typedef struct tt__job_rounds tt__job_rounds;

/* This process in a round, and the store where its ranks meet. */
typedef struct tt__job_place {
    int round, rank, world, port;
    char host[256], reason[400];
} tt__job_place;

/* Tell the launcher that this process, rank `rank` of `world`, survives the end of others, and begin to hear of rounds.
 * *out := NULL if there is no launcher that tells of rounds. *round := the present one. TT_ERR_STATE: the process has
 * rounds, or a tt_elastic, already. */
TT__EXPORT TT_NODISCARD tt_status tt__job_rounds_begin(tt__job_rounds **out, int rank, int world, int *round);

/* Ask for the next round, because of this thread's last error, and wait for it at most `wait_ms`. The program has to
 * leave its group then, and to join that of the place. Errors: as those of tt_elastic_restore(), with the last error in
 * their text. */
TT__EXPORT TT_NODISCARD tt_status tt__job_rounds_next(tt__job_rounds *rounds, int64_t wait_ms, tt__job_place *place);

/* Has the launcher told since the last call that it wants another round? Never waits. */
TT__EXPORT bool tt__job_rounds_wanted(tt__job_rounds *rounds);

/* From here to tt__job_rounds_joined() word of the launcher interrupts this thread's waits in the library
 * (TT_ERR_ABORTED): the rank that it waits for may be lost, too. */
TT__EXPORT void tt__job_rounds_joining(const tt__job_rounds *rounds);

/* Is there such word? For waits of other kinds. */
TT__EXPORT bool tt__job_rounds_in_vain(const tt__job_rounds *rounds);

/* `well`: the rank is in its round; else it has to wait for the next one. */
TT__EXPORT void tt__job_rounds_joined(tt__job_rounds *rounds, bool well);

/* NULL is allowed. */
TT__EXPORT void tt__job_rounds_end(tt__job_rounds *rounds);

TT_END_DECLS

#endif
