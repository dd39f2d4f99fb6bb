/* Traps: in a directory that others may write to, as /tmp or a project's folder, a stranger can put a link or a file
 * under a name that he guesses. If root wrote through it, root would write where the stranger wants. Symbolic links are
 * judged by the rules here, whatever the kernel's protected_symlinks is. */
#ifndef TT_BASE_PLANTED_H
#define TT_BASE_PLANTED_H

#include "base/export.h"

#include <sys/stat.h>

/* Split `path` into its directory, which the caller frees (NULL: no memory), and its last name. */
char *tt__path_split(const char *path, const char **name);

/* Did a stranger put `found` into the directory `around`, one like /tmp, to which all may write and which is sticky? */
bool tt__is_planted(const struct stat *found, const struct stat *around);

/* May others than its owner and root write to this directory? A group whose one member is the owner does not count. */
bool tt__others_may_write(const struct stat *folder);

/* Follow the symbolic links of `path` to the file, which need not exist; *out, its path, is for the caller to free.
 * TT_ERR_IO: also if a link in a directory that others may write to is neither this user's nor root's; before the last
 * name, the directory's owner may have links, too. */
TT__EXPORT TT_NODISCARD tt_status tt__follow_links(const char *path, char **out);

/* Make a folder unless it is there; *made (may be NULL) tells whether it was made. TT_ERR_IO: also if a stranger's link
 * has its name. */
TT_NODISCARD tt_status tt__make_folder(const char *path, bool *made);

/* The same for a folder and those above it. */
TT__EXPORT TT_NODISCARD tt_status tt__make_folders(const char *path);

/* Open a file for reading and appending, and make it if it is missing; `only_new`: make it, or fail. Follows no link at
 * the last name, and doesn't wait (O_NONBLOCK stays set). The caller must judge a file that was there, with
 * tt__check_writable(). -1: errno says why. */
TT__EXPORT int tt__open_to_append(const char *path, bool only_new);

/* Check that what was opened for writing, as `path`, may be written to: a character device, or a regular file that no
 * stranger has planted, as a file or as another name (hard link) of one. Errors: TT_ERR_INVALID it is something else;
 * TT_ERR_IO. */
TT__EXPORT TT_NODISCARD tt_status tt__check_writable(int fd, const char *path);

/* Open a regular file for reading. Whatever could make us wait, such as a FIFO, is refused. TT_ERR_IO: *fd is -1. */
TT_NODISCARD tt_status tt__open_regular(int *fd, const char *path);

/* Check that a library can open the file without waiting: it is regular, or missing, which the library will report.
 * TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_regular(const char *path);

/* Check that a file that was there, opened for reading, may be taken for this user's own work: it is regular, and
 * belongs to this user, to root, or to its folder's owner if nobody else may write there. `path` has no link at its
 * end. TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_taken(int fd, const char *path);

/* Check that no stranger has put the folder `path`, or one above it, into a directory like /tmp: he could exchange what
 * is made in it. `path` is absolute and has no links. TT_ERR_IO. */
TT_NODISCARD tt_status tt__check_folder(const char *path);

/* Name the kind of what is no regular file, for errors: "a directory". */
const char *tt__kind_text(mode_t mode);

#endif
