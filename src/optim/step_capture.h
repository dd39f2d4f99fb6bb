/* Steps that a graph captures: tensor/device/capture.h. Their options and counts are the device's, anew for each
 * replay. */
#ifndef TT_OPTIM_STEP_CAPTURE_H
#define TT_OPTIM_STEP_CAPTURE_H

#include "optim/fused.h"

/* The powers of the betas in this step, where the rule has some. */
void tt__step_powers(const tt__optimizer_class *cls, const tt__optim_group *group, int64_t step, double power[2]);

/* State that is new is zero. TT_ERR_STATE if that is captured: replays would go on with zeros. */
tt_status tt__step_check_begun(const char *who, const tt__optim_group *group, size_t param);

/* If the thread captures a graph of the group's device, let its runs, the first n and those from first_of_rows on, have
 * their numbers there, and replays count steps. */
tt_status tt__step_capture(const tt_optimizer *optimizer, tt__optim_group *group, size_t n, size_t first_of_rows);

#endif
