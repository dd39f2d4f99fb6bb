#!/bin/sh
# Every public header compiles alone, as strict C11 or C++17; all of them together in every other dialect, with each
# compiler there is. Whether a header stands alone is no question of the dialect. Those of C++ each, with all that the
# standard library brings, are for the long form (TT_LONG).
set -eu
flags="-pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I$TT_SOURCE/include"
tried=0
# compiles COMPILER-AND-DIALECT HEADER...; nothing if the compiler isn't there.
compiles() {
    compiler=$1
    shift
    command -v "${compiler%% *}" >/dev/null || return 0
    # shellcheck disable=SC2086  # flags are several words
    { printf '#include <%s>\n' "$@" && echo 'int tutti_header_is_alone;'; } | $compiler $flags - ||
        { echo "FAILED: $* with $compiler"; exit 1; }
    tried=$((tried + 1))
}
first_of() {
    for one; do command -v "$one" && return; done
}
c=$(first_of gcc clang cc) cpp=$(first_of g++ clang++ c++)
cd "$TT_SOURCE/include"
for header in tutti/*.h; do compiles "$c -xc -std=c11" "$header"; done
# Its macros need nothing else either.
printf '#include <tutti/job.h>\nint timed(void);\nint timed(void) {\n int timer;\n TT_EXPIRES(1000);\n
return tt_expires(&timer, 60000) != TT_OK;\n}\n' | "$c" -xc -std=c11 $flags -
[ "${TT_LONG:-0}" = 0 ] ||
    for header in tutti/*.hpp tutti/cpp/*.hpp; do compiles "$cpp -xc++ -std=c++17" "$header"; done
for compiler in "gcc -xc -std=c11" "clang -xc -std=c11" "g++ -xc++ -std=c++17" "clang++ -xc++ -std=c++17"; do
    compiles "$compiler" tutti/*.h
done
for compiler in "g++ -xc++ -std=c++17" "clang++ -xc++ -std=c++17" "g++ -xc++ -std=c++20" "clang++ -xc++ -std=c++20"; do
    compiles "$compiler" tutti/*.hpp
done
echo "$tried compilations"
[ "$tried" -gt 0 ]
