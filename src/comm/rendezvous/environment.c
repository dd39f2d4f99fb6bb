/* A process's environment as a table of functions, which tests replace by recorded environments. */
#include "comm/rendezvous/launchers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Does the variable name a file or a folder? A program that runs with more rights than its caller has takes none from
 * the caller. */
static bool names_a_path(const char *name) {
    static const char *const names[] = {"PATH", "TMPDIR", "VIRTUAL_ENV", "XDG_RUNTIME_DIR"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static const char *own_value(const tt__environment *environment, const char *name) {
    (void)environment;
    return names_a_path(name) ? secure_getenv(name) : getenv(name);
}

/* SO_PEERCRED of either end of a socketpair() names the process that made it. */
static long own_maker_of(const tt__environment *environment, const char *fd) {
    struct ucred maker;
    socklen_t size = sizeof maker;
    int64_t number;
    (void)environment;
    if (!*fd || strspn(fd, "0123456789") != strlen(fd) || strlen(fd) > 6)
        return 0;
    number = strtoll(fd, NULL, 10);
    return getsockopt((int)number, SOL_SOCKET, SO_PEERCRED, &maker, &size) ? 0 : (long)maker.pid;
}

const tt__environment tt__own_environment = {.get = own_value, .maker_of = own_maker_of};

const char *tt__environment_value(const tt__environment *environment, const char *name) {
    const char *value = environment->get(environment, name);
    return value && *value ? value : NULL;
}
