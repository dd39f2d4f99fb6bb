/* Downloads one file as `tutti data` does: NAME SHA256 SIZE DIR MIRROR... */
#include "cli/data/data.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    tt__download_end end;
    if (argc < 6)
        return 2;
    const tt__remote_file file = {argv[1], argv[2], atoll(argv[3])};
    if (tt__download(&end, NULL, &file, (const char *const *)argv + 5, argv[4], NULL)) {
        tt_report();
        return EXIT_FAILURE;
    }
    puts(end == TT__WAS_THERE ? "was there" : "downloaded");
    return EXIT_SUCCESS;
}
