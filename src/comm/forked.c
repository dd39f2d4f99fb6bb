/* Groups in a forked child. The child has a copy of its parent's groups, but not its threads, and shares its sockets
 * and memory: a single byte that it wrote would break the parent's calls. So a group knows the process that made it; a
 * child can do nothing with one but end its copy. */
#include "base/error.h"
#include "comm/group.h"

#include <pthread.h>
#include <unistd.h>

uint32_t tt__forks;

static void in_child(void) { tt__forks++; }

static void register_atfork(void) { pthread_atfork(NULL, NULL, in_child); }

void tt__watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_atfork);
}

tt_status tt__fail_inherited(const tt_group *group) {
    return tt__fail(TT_ERR_STATE,
                    "process %d was forked by rank %d (pid %d), and can't use the group that it inherited: fork before "
                    "tt_init_process_group(), or make a group of the child's own",
                    (int)getpid(), group->ranks[group->rank], (int)group->owner);
}
