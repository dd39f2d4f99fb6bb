/* What a process finds out about its start through a table of functions, so that recorded environments can be looked at
 * as this process's own is. */
#ifndef TT_COMM_RENDEZVOUS_ENVIRONMENT_H
#define TT_COMM_RENDEZVOUS_ENVIRONMENT_H

#include <tutti/base.h>

typedef struct tt__environment {
    const char *(*get)(const struct tt__environment *environment, const char *name); /* as getenv() */
    /* The pid of the process that made the socket whose number is `fd`; 0: it can't be told. */
    long (*maker_of)(const struct tt__environment *environment, const char *fd);
} tt__environment;

/* This process's. */
extern const tt__environment tt__own_environment;

/* The value of a variable; NULL where it is not set, and where it is empty. */
const char *tt__environment_value(const tt__environment *environment, const char *name);

#endif
