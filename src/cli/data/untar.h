/* Files out of a .tar.gz archive. */
#ifndef TT_CLI_UNTAR_H
#define TT_CLI_UNTAR_H

#include <tutti/base.h>

/* Read the archive that `fd` is, from its beginning (`archive`: its name, for errors), and write the members called
 * "FOLDER/NAME" for each of `names` (NULL ends the list) to dir/FOLDER/NAME; others are left alone, so no name in the
 * archive is ever a path. Each file appears whole. Errors: TT_ERR_IO, also a folder that another user has put there;
 * TT_ERR_FORMAT no such archive, or a member is missing. */
tt_status tt__untar(int fd, const char *archive, const char *dir, const char *folder, const char *const *names);

#endif
