/* Questions that a child process answers: what they load, and what that begins, does not stay in this one. */
#ifndef TT_CLI_ASK_CHILD_H
#define TT_CLI_ASK_CHILD_H

#include "cli/cli.h"

#include <stdio.h>

/* Fork; `ask` writes to `to` there. `text` := what it wrote, as far as there is room. Waits at most a minute. Errors:
 * TT_ERR_SYSTEM no process could be made, or it crashed; TT_ERR_TIMEOUT. `what` ("NVIDIA's driver") names what was
 * asked for. */
tt_status tt__ask_child(const char *what, void (*ask)(FILE *to), char *text, size_t size);

#endif
