/* What a stranger may have put where this process is about to write: in a directory that others may write to, as /tmp
 * or a project's folder, a link or a file under a name that can be guessed. Writing through it would give root's hand
 * to whoever put it there. Symbolic links are judged by these rules, whatever the kernel's protected_symlinks is. */
#ifndef TT_BASE_PLANTED_H
#define TT_BASE_PLANTED_H

#include "base/export.h"

#include <sys/stat.h>

/* Split `path` into its directory (the caller's to free; NULL: no memory) and its last name. */
char *tt__path_split(const char *path, const char **name);

/* Did a stranger put `found` into the directory `around`, one as /tmp: all may write to it, and it is sticky? */
bool tt__is_planted(const struct stat *found, const struct stat *around);

/* May others than its owner and root write to this directory? A group of its owner alone is no other. */
bool tt__others_may_write(const struct stat *folder);

/* Find the file that `path` leads to through its symbolic links, which need not exist: *out is allocated. TT_ERR_IO: a
 * link is neither this user's nor root's, in a directory that others may write to; on the way to the last name, links
 * of the directory's owner are followed, too. */
TT__EXPORT TT_NODISCARD tt_status tt__follow_links(const char *path, char **out);

/* Make a folder unless it is there; *made (may be NULL) says which. TT_ERR_IO: also where a stranger's link stands in
 * its place. */
TT_NODISCARD tt_status tt__make_folder(const char *path, bool *made);

/* The same for a folder and those above it. */
TT__EXPORT TT_NODISCARD tt_status tt__make_folders(const char *path);

/* Open a file for reading and appending, `only_new` or where it is missing a new one; never through a link at its very
 * name, and without waiting (O_NONBLOCK stays set). What was there is for the caller to judge. -1: errno says why. */
TT__EXPORT int tt__open_to_append(const char *path, bool only_new);

/* Check that what was opened for writing, `path` for errors, may be written to: a character device, or a regular file
 * that no stranger has planted, as a file or as another name of one. Errors: TT_ERR_INVALID of another kind;
 * TT_ERR_IO. */
TT__EXPORT TT_NODISCARD tt_status tt__check_writable(int fd, const char *path);

/* Open a regular file for reading, and nothing that would keep us waiting, as a FIFO. TT_ERR_IO: *fd is -1. */
TT_NODISCARD tt_status tt__open_regular(int *fd, const char *path);

/* Check that a library which opens the file by itself won't wait: it is regular, or not there, which the library says.
 * TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_regular(const char *path);

/* Check that a file which was there already, opened for reading, may be taken for this user's own work: a regular file
 * of this user's or root's, or one of the user who has its folder and is alone in writing there. `path` has no link at
 * its end. TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_taken(int fd, const char *path);

/* Check that neither the folder `path` nor one above it is what a stranger has put into a directory like /tmp, where he
 * could exchange what is made in it. `path` is from the root on and has no links. TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_folder(const char *path);

/* Name what is no regular file, for errors. */
const char *tt__kind_text(mode_t mode);

#endif
