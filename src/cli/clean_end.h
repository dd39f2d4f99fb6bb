/* An end by a signal that leaves no half-written files. */
#ifndef TT_CLI_CLEAN_END_H
#define TT_CLI_CLEAN_END_H

/* From now on SIGINT, SIGTERM and SIGHUP remove the temporaries of files that are being written (atomic_file.h), and
 * then end the process as they would have. Call it once, while the process has one thread. Without memory for another
 * one they end it at once. */
void tt__cli_end_cleanly(void);

#endif
