/* Programs in a network name space of their own, where no interface is up at first. */
#ifndef TESTS_SUPPORT_OWN_NETWORK_H
#define TESTS_SUPPORT_OWN_NETWORK_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Run `holds` in a child there: it must return true. Skips the test where no name space can be made. */
static inline void assert_in_own_network(bool (*holds)(void)) {
    enum { NONE_HERE = 77 };
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET) && unshare(CLONE_NEWNET) ? NONE_HERE : holds() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NONE_HERE) {
        print_message("no network name space can be made here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
