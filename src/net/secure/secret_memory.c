#include "net/secure/secret_memory.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Scripts take the numbers up to 9 by hand, and shells some from 10 on. */
enum { SECRET_FD = 100, SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

#define WHAT_TO_DO \
    "leave that descriptor open, or start `tutti run` with TT_SECRET_FILE, the path of a file with the secret"

/* Move to SECRET_FD or above, if the limit on descriptors allows. */
static int move_up(int fd) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, SECRET_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

tt_status tt__secret_memory_make(int *fd, const char *text) {
    size_t size = strlen(text);
    struct rlimit file;
    *fd = -1;
    if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur < size) /* the kernel would kill us */
        return tt__fail(TT_ERR_SYSTEM,
                        "the job secret's memory takes %zu bytes; the limit on a file's size (ulimit -f) "
                        "allows %zu: raise it",
                        size, (size_t)file.rlim_cur);
    *fd = move_up(tt__fd(memfd_create("job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (*fd >= 0 && write(*fd, text, size) == (ssize_t)size && !fcntl(*fd, F_ADD_SEALS, SEALS))
        return TT_OK;
    int errnum = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't make the memory that hands the job secret to the ranks");
}

/* Read `size` bytes from the beginning. */
static bool read_text(int fd, char *text, size_t size) {
    size_t done = 0;
    for (ssize_t n; done < size; done += (size_t)n)
        if ((n = pread(fd, text + done, size - done, (off_t)done)) <= 0)
            return false;
    text[size] = '\0';
    return strlen(text) == size;
}

tt_status tt__secret_memory_read(const char *number, char text[TT__SECRET_MAX + 1]) {
    int64_t fd = -1;
    struct stat info;
    TT__TRY(tt__parse_i64("TT_SECRET_FD", number, 0, INT_MAX, &fd));
    if (fstat((int)fd, &info))
        return tt__fail_errno(TT_ERR_IO, errno,
                              "TT_SECRET_FD=%d: the job secret that `tutti run` hands to its ranks is not there: the "
                              "program, or what started it, has closed the descriptor, as Python's subprocess does "
                              "without pass_fds; " WHAT_TO_DO,
                              (int)fd);
    int seals = fcntl((int)fd, F_GET_SEALS); /* another file: -1, or fewer of them */
    if (seals < 0 || (seals & SEALS) != SEALS)
        return tt__fail(TT_ERR_IO,
                        "TT_SECRET_FD=%d: expected the sealed memory in which `tutti run` hands the job secret to its "
                        "ranks, but the descriptor is another file: the program, or what started it, has closed it and "
                        "used its number again; " WHAT_TO_DO,
                        (int)fd);
    if (info.st_size < TT__SECRET_MIN || info.st_size > TT__SECRET_MAX ||
        !read_text((int)fd, text, (size_t)info.st_size))
        return tt__fail(TT_ERR_IO,
                        "TT_SECRET_FD=%d: expected %d to %d bytes of text, the job secret, but the sealed memory there "
                        "holds something else (%lld bytes); " WHAT_TO_DO,
                        (int)fd, TT__SECRET_MIN, TT__SECRET_MAX, (long long)info.st_size);
    return TT_OK;
}
