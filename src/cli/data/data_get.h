/* `tutti data mnist`, `cifar10`, `cifar100`: data sets that are known by name. */
#ifndef TT_CLI_DATA_GET_H
#define TT_CLI_DATA_GET_H

#include "cli/cli.h"

extern const tt__command tt__cmd_data_mnist, tt__cmd_data_cifar10, tt__cmd_data_cifar100;

#endif
