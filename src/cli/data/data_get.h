/* `tutti data mnist`, `cifar10`, `cifar100`: data sets that are known by name, and the folder that one is written to: a
 * command that brings nothing leaves none. */
#ifndef TT_CLI_DATA_GET_H
#define TT_CLI_DATA_GET_H

#include "cli/cli.h"

extern const tt__command tt__cmd_data_mnist, tt__cmd_data_cifar10, tt__cmd_data_cifar100;

/* Make the folder, unless it is there; the text must stay. An error is printed. */
tt_status tt__data_folder_begin(const char *dir);

/* Remove it if this command made it and it is empty. */
void tt__data_folder_end(void);

#endif
