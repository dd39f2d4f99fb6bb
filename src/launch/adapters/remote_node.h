/* The far end of `tutti run --ssh`, which starts a launcher on another host. ssh runs `tutti remote-node` there, which
 * reads from its stdin
 *
 *   "tutti VERSION BYTES\n"   how long what follows is
 *   working directory, number of arguments, arguments, environment ("NAME=VALUE"), each ended by a NUL
 *   a byte for each signal that the launcher is to get
 *
 * so that neither a shell nor `ps` sees arguments or secrets. The end of the input, or of the connection, counts as a
 * SIGTERM. */
#ifndef TT_LAUNCH_ADAPTERS_REMOTE_NODE_H
#define TT_LAUNCH_ADAPTERS_REMOTE_NODE_H

#include <tutti/base.h>

/* Set for launchers that are started so. */
#define TT__REMOTE_VARIABLE "TUTTI_REMOTE_NODE"

/* Exit codes. TT__REMOTE_FAILED: nothing could be started, as ssh itself says it. TT__REMOTE_DONE: the launcher
 * ended with 0 (253 or more becomes 254). So a 0 means that another command ran, such as one that authorized_keys
 * forces. */
enum { TT__REMOTE_MAX_BYTES = 4 << 20, TT__REMOTE_HEAD_SIZE = 64, TT__REMOTE_FAILED = 255, TT__REMOTE_DONE = 253 };

/* Return the exit code of the far end for that of a launcher. */
int tt__remote_code(int exit_code);

/* Read what to run, and run it; *exit_code := its exit code, 128 + N for signal N. Errors, with nothing started:
 * TT_ERR_PROTOCOL the peer is not `tutti run --ssh` of this version; TT_ERR_SYSTEM no such directory or program;
 * TT_ERR_MEMORY. */
tt_status tt__remote_node_run(int from, int *exit_code);

#endif
