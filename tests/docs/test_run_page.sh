#!/bin/sh
# What run_page.sh must see: a page that is right, and each way in which one can be wrong.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runner=$TT_SOURCE/tests/docs/run_page.sh

program() { # STATEMENT
    printf '```c\n#include <stdio.h>\n#include <tutti/tutti.h>\nint main(void) {\n    %s\n}\n```\n' "$1"
}
output() { printf '```output\n%s\n```\n' "$1"; }
page() { cat >"$work/page.md"; }
accepted() { # WHAT
    sh "$runner" "$work/page.md" >"$work/log" 2>&1 || { cat "$work/log"; echo "FAILED: $1 was refused"; exit 1; }
}
refused() { # WHAT TEXT
    if sh "$runner" "$work/page.md" >"$work/log" 2>&1; then
        echo "FAILED: $1 was accepted"
        exit 1
    fi
    grep -q "$2" "$work/log" || { cat "$work/log"; echo "FAILED: $1 was refused for another reason"; exit 1; }
}

hello='printf("%s\n", tt_status_name(TT_OK)); return 0;'
fragment() { printf 'Text.\n\n```c\nthis is(no program\n```\n'; }
{ fragment; program "$hello"; output TT_OK; program 'return 0;'; } | page
accepted "a page that is right"
grep -q 'ok: program 2' "$work/log" || { echo "FAILED: the second program was not run"; exit 1; }
{ program "$hello" | sed 's/```c/```c ranks=2/'; printf '```output\nTT_OK\nTT_OK\n```\n'; } | page
accepted "a program on two ranks"
cpp() { printf '```cpp\n#include <cstdio>\n#include <tutti/tutti.hpp>\nint main() {\n    %s\n}\n```\n' "$1"; }
{ cpp 'std::puts(tutti::version());'; output "0.1.0"; program "$hello"; output TT_OK; } | page
accepted "a page in C++ and C"
grep -q 'ok: program 2' "$work/log" || { echo "FAILED: the program behind the one in C++ was not run"; exit 1; }
cpp 'tutti::tensor copy = tutti::tensor::lent(nullptr), other = copy;' | page
refused "a program in C++ that does not compile" "program 1 with"
fragment | page
refused "a page without a program" "no program found"
program 'return nothing;' | page
refused "a program that does not compile" "program 1 with"
program 'return 3;' | page
refused "a program that fails" "ended with status 3"
{ program "$hello"; output TT_ERR; } | page
refused "other output" "prints something else"
output TT_OK | page
refused "output of nothing" "follows no program"
{ program "$hello"; printf '```c\n'; } | page
refused "an open block" "not closed"
echo "ok"
