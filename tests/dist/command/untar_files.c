/* Unpacks files as `tutti data` does: ARCHIVE DIR FOLDER NAME... */
#include "cli/data/data.h"

#include <fcntl.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (!tt__untar(fd, argv[1], argv[2], argv[3], (const char *const *)argv + 4))
        return EXIT_SUCCESS;
    tt_report();
    return EXIT_FAILURE;
}
