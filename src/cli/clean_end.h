/* An end by a signal that leaves no half-written files. */
#ifndef TT_CLI_CLEAN_END_H
#define TT_CLI_CLEAN_END_H

#include <tutti/base.h>

/* From now on SIGINT, SIGTERM and SIGHUP remove the temporaries of files that are being written (atomic_file.h), and
 * then end the process as they would have. Call it once, while the process has one thread. Without memory for another
 * one they end it at once. */
void tt__cli_end_cleanly(void);

/* Make a folder unless it is there. From now on such an end removes it if it was made here and is empty. The text must
 * stay. Errors as tt__make_folder(). */
tt_status tt__cli_make_folder(const char *folder);

/* Remove it now if it was made here and is empty; an end no longer does. Where a signal has begun to end the process it
 * does not return: call it before an error is told that such an end can make. */
void tt__cli_remove_folder(void);

#endif
