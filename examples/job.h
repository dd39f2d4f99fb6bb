/* How the larger examples join a job. */
#ifndef EXAMPLES_JOB_H
#define EXAMPLES_JOB_H

#include <stdlib.h>
#include <tutti/tutti.h>

/* Join it. Without a launcher this process is a world of its own. */
static tt_status join_job(tt_group **world) {
    bool launched = getenv("RANK") || getenv("WORLD_SIZE");
    return launched ? tt_init_process_group(world)
                    : tt_init_process_group(world, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1);
}

#endif
