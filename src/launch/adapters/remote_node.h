/* What starts a launcher on another host says to it: the process that ssh runs there, `tutti remote-node`, reads from
 * its stdin
 *
 *   "tutti VERSION BYTES\n"   how long what follows is
 *   working directory, number of arguments, arguments, environment ("NAME=VALUE"), each ended by a NUL
 *   a byte for each signal that the launcher is to get
 *
 * so that neither a shell nor `ps` sees arguments or secrets. Its end, also that of the connection, is a SIGTERM. */
#ifndef TT_LAUNCH_ADAPTERS_REMOTE_NODE_H
#define TT_LAUNCH_ADAPTERS_REMOTE_NODE_H

#include <tutti/base.h>

/* Set for launchers that are started so. */
#define TT__REMOTE_VARIABLE "TUTTI_REMOTE_NODE"

/* TT__REMOTE_FAILED: exit code where nothing could be started, as ssh's own. TT__REMOTE_DONE:
 * that of a launcher that ended with 0 (one of 253 or more becomes 254). A 0 is then what another command ended with,
 * as one that authorized_keys puts in the place of every other. */
enum { TT__REMOTE_MAX_BYTES = 4 << 20, TT__REMOTE_HEAD_SIZE = 64, TT__REMOTE_FAILED = 255, TT__REMOTE_DONE = 253 };

/* The exit code of the far end for that of a launcher. */
int tt__remote_code(int exit_code);

/* Read what to run, and run it; *exit_code := its, 128 + N for signal N. Errors, with nothing started:
 * TT_ERR_PROTOCOL somebody else is at the other end, or another version; TT_ERR_SYSTEM no such directory or program;
 * TT_ERR_MEMORY. */
tt_status tt__remote_node_run(int from, int *exit_code);

#endif
