#!/bin/sh
# Run the tests of a build in a locale: every test program and the command begin with setlocale(LC_ALL, ...), as a
# program that speaks its user's language does. Examples, and programs that scripts start and read, print numbers of
# their own: they stay as they are.
#
# usage: tools/suite_in_locale.sh LOCALE [BUILD [CTEST_ARGUMENTS...]]
#        tools/suite_in_locale.sh de_DE build -L unit
#
# The locale is made in a temporary folder, so none has to be installed. Needs localedef and its sources (Debian's
# package locales), and cc. Exit code 77: they are missing.
set -eu

locale=${1:?usage: suite_in_locale.sh LOCALE [BUILD [CTEST_ARGUMENTS...]]}
shift
build=build
if [ $# -gt 0 ]; then
    build=$1
    shift
fi
build=$(cd "$build" && pwd -P)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

if ! command -v localedef >/dev/null || ! [ -e "/usr/share/i18n/locales/$locale" ]; then
    echo "skipped: there is no localedef, or no source of $locale"
    exit 77
fi
# It warns of what a source lacks, which counts as an error without -c.
localedef -c --no-archive -i "$locale" -f UTF-8 "$folder/$locale.UTF-8" 2>"$folder/log" || {
    cat "$folder/log" >&2
    exit 1
}

cat >"$folder/begin.c" <<'C'
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void) {
    char program[PATH_MAX] = "";
    const char *build = getenv("SUITE_BUILD"), *locale = getenv("SUITE_LOCALE");
    if (!build || !locale || readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return;
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    size_t n = strlen(build);
    if (!strncmp(program, build, n) && program[n] == '/' && (!strncmp(name, "test_", 5) || !strcmp(name, "tutti")) &&
        (!setlocale(LC_ALL, locale) || !setlocale(LC_MESSAGES, "C"))) /* tests read the system's messages */
        fprintf(stderr, "there is no locale %s\n", locale);
}
C
cc -shared -fPIC -o "$folder/begin.so" "$folder/begin.c"

export LOCPATH="$folder" SUITE_LOCALE="$locale.UTF-8" SUITE_BUILD="$build"
status=0
LD_PRELOAD="$folder/begin.so" ctest --test-dir "$build" --output-on-failure "$@" || status=$?
exit $status
