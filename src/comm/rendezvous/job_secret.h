/* The job secret of ranks that srun starts on several hosts, where nobody gave one: rank 0 draws it, seals it with
 * MUNGE, and its store hands the credential to the others (net/secure/munge.h).
 *
 * The credential can be opened by processes of this user alone, on hosts with the cluster's key, for as long as munged
 * lets it live; it names the job and its step. Who listens at the place first, or replays an older credential, does not
 * know the secret, and fails in the handshake that follows. */
#ifndef TT_COMM_RENDEZVOUS_JOB_SECRET_H
#define TT_COMM_RENDEZVOUS_JOB_SECRET_H

#include "comm/rendezvous/rendezvous.h"

/* Have a secret where the meeting needs one, the environment names none, and MUNGE can bring it. TT_OK also where
 * nothing is to be done. Errors: as tt__asking_ask(); TT_ERR_AUTH MUNGE can't be used, what came is another user's or
 * job's. */
tt_status tt__job_secret_find(const tt__meeting *meeting, int64_t timeout_ms);

/* Fail, as there is no secret: TT_ERR_AUTH. `why`: in parentheses; or NULL. */
tt_status tt__job_secret_missing(const tt__meeting *meeting, const char *why);

#endif
