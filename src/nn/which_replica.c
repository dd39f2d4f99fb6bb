#include "nn/which_replica.h"

static _Thread_local tt__replica mine = {0, 1};

tt__replica tt__replica_of_thread(void) { return mine; }

tt__replica tt__replica_set(tt__replica replica) {
    tt__replica before = mine;
    mine = replica;
    return before;
}
