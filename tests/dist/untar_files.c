/* Unpacks files as `tutti data` does: ARCHIVE DIR FOLDER NAME... */
#include "cli/untar.h"

#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    if (!tt__untar(argv[1], argv[2], argv[3], (const char *const *)argv + 4))
        return EXIT_SUCCESS;
    tt_report();
    return EXIT_FAILURE;
}
