/* Locales in which numbers look otherwise, made by localedef in the folder that a test runs in. */
#ifndef TESTS_SUPPORT_LOCALES_H
#define TESTS_SUPPORT_LOCALES_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Decimal points, as localedef's sources name them: one of de_DE, one of ps_AF, which has two bytes. */
static const char *const decimal_points[] = {"<U002C>", "<U066B>"};
enum { DECIMAL_POINTS = sizeof decimal_points / sizeof *decimal_points };

/* Have this process write numbers with decimal_points[i]. False: this machine can't make locales. */
static inline bool use_decimal_point(int i) {
    char command[160];
    FILE *source = fopen("numeric", "w");
    if (!source)
        return false;
    fprintf(source,
            "comment_char %%\nescape_char /\nLC_NUMERIC\ndecimal_point \"%s\"\nthousands_sep \".\"\ngrouping 3;3\n"
            "END LC_NUMERIC\n",
            decimal_points[i]);
    fclose(source);
    snprintf(command, sizeof command, "localedef -c --no-archive -i numeric -f UTF-8 ./tt_%d.UTF-8 >locale.log 2>&1",
             i);
    bool made = system(command) >= 0;
    snprintf(command, sizeof command, "tt_%d.UTF-8", i);
    char half[16] = "";
    if (made && !setenv("LOCPATH", ".", 1) && setlocale(LC_NUMERIC, command))
        snprintf(half, sizeof half, "%.1f", 0.5);
    return half[1] != '\0' && half[1] != '.';
}

static inline void use_c_locale(void) { setlocale(LC_NUMERIC, "C"); }

#endif
