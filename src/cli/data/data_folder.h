/* The folder that a data set is written to: a command that brings nothing leaves none. */
#ifndef TT_CLI_DATA_FOLDER_H
#define TT_CLI_DATA_FOLDER_H

#include <tutti/base.h>

/* Make the folder, unless it is there; the text must stay. An error is printed. */
tt_status tt__data_folder_begin(const char *dir);

/* Remove it if this command made it and it is empty. */
void tt__data_folder_end(void);

#endif
