#!/bin/sh
# Every public header compiles alone, as strict C11 and as C++17; tutti.hpp and its parts as C++17 and C++20.
set -eu
flags="-pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror -fsyntax-only -I$TT_SOURCE/include"
tried=0
for header in "$TT_SOURCE"/include/tutti/*.h "$TT_SOURCE"/include/tutti/*.hpp "$TT_SOURCE"/include/tutti/cpp/*.hpp; do
    name=${header#"$TT_SOURCE"/include/}
    for compiler in "gcc -xc -std=c11" "clang -xc -std=c11" "g++ -xc++ -std=c++17" "clang++ -xc++ -std=c++17" \
        "g++ -xc++ -std=c++20" "clang++ -xc++ -std=c++20"; do
        case $name$compiler in
        *.hpp*-xc\ * | *.hclang*c++20 | *.hg++*c++20 | */cpp/*c++20) continue ;; # tutti.hpp includes all the others
        esac
        command -v "${compiler%% *}" >/dev/null || continue
        # shellcheck disable=SC2086  # flags are several words
        printf '#include <%s>\nint tutti_header_is_alone;\n' "$name" | $compiler $flags - ||
            { echo "FAILED: $name with $compiler"; exit 1; }
        tried=$((tried + 1))
    done
done
echo "$tried compilations"
[ "$tried" -gt 0 ]
