/* A file from the net that is known by its checksum.
 *
 * It is written to "PATH.part", locked meanwhile, which a later call goes on with if it is this user's own, and gets
 * its name when the checksum is right. */
#ifndef TT_CLI_DOWNLOAD_H
#define TT_CLI_DOWNLOAD_H

#include <tutti/base.h>

typedef struct tt__remote_file {
    const char *name;   /* on the server, behind a mirror's address and a slash */
    const char *sha256; /* of the whole file, 64 small hexadecimal digits */
    int64_t size;       /* bytes */
} tt__remote_file;

/* What came of a file. */
typedef enum tt__download_end { TT__DOWNLOADED, TT__WAS_THERE } tt__download_end;

/* Called now and then with the bytes that are there. */
typedef void (*tt__download_progress)(const tt__remote_file *file, int64_t bytes);

/* Get a file into the folder `dir` from the first of the mirrors (NULL ends the list) that has it. One that is there
 * already stays: *end says so if its checksum is right, else it is an error; so is another user's, who could change it
 * afterwards, but where he alone has the folder. *fd (`fd` may be NULL) becomes the very file whose checksum was found
 * right, open for reading: the caller's to close, -1 on failure. A connection that breaks is made again, as
 * long as bytes come. Errors: TT_ERR_NET tells what each mirror said; TT_ERR_FORMAT a wrong checksum; TT_ERR_IO the
 * disk, or another process downloads the same file; TT_ERR_UNSUPPORTED there is no libcurl. */
tt_status tt__download(tt__download_end *end, int *fd, const tt__remote_file *file, const char *const *mirrors,
                       const char *dir, tt__download_progress progress);

#endif
