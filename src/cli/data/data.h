/* What `tutti data` needs to get a data set: downloads and archives. */
#ifndef TT_CLI_DATA_DATA_H
#define TT_CLI_DATA_DATA_H

#include <tutti/base.h>

/* ---- download.c */

/* A file from the net that is known by its checksum. */
typedef struct tt__remote_file {
    const char *name;   /* on the server, behind a mirror's address and a slash */
    const char *sha256; /* of the whole file, 64 small hexadecimal digits */
    int64_t size;       /* bytes */
} tt__remote_file;

/* How a download ended. */
typedef enum tt__download_end { TT__DOWNLOADED, TT__WAS_THERE } tt__download_end;

/* Called now and then with the bytes that are there. */
typedef void (*tt__download_progress)(const tt__remote_file *file, int64_t bytes);

/* Get a file into the folder `dir` from the first of the mirrors (NULL ends the list) that has it. It is written to
 * "PATH.part", locked meanwhile, and gets its name when the checksum is right. A later call goes on with a .part of
 * this user's own. A broken connection is made again as long as bytes come.
 *
 * A file that is there already stays: *end says so if its checksum is right, else it is an error. A file of another
 * user but root, who could change it afterwards, is an error, too, unless the folder is that user's alone. *fd (`fd`
 * may be NULL) becomes the very file whose checksum was found right, open for reading: the caller's to close, -1 on
 * failure. Errors: TT_ERR_NET with what each mirror said; TT_ERR_FORMAT a wrong checksum; TT_ERR_IO the disk, or
 * another process downloads the same file; TT_ERR_UNSUPPORTED there is no libcurl. */
tt_status tt__download(tt__download_end *end, int *fd, const tt__remote_file *file, const char *const *mirrors,
                       const char *dir, tt__download_progress progress);

/* ---- untar.c */

/* Read the .tar.gz archive that `fd` is from its beginning, and write its members "FOLDER/NAME", for each of `names`
 * (NULL ends the list), to dir/FOLDER/NAME. Others are skipped: no name in the archive becomes a path. Each file
 * appears whole. `archive` names it in errors. Errors: TT_ERR_IO, also for a folder that another user has put there;
 * TT_ERR_FORMAT no such archive, or a member is missing. */
tt_status tt__untar(int fd, const char *archive, const char *dir, const char *folder, const char *const *names);

#endif
