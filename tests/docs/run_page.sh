#!/bin/sh
# Compile and run the programs of a page: every block that begins with "```c" or "```cpp" and has a main. A block
# "```output" behind a program is what it must print. "```c ranks=2" runs it on two ranks. Blocks without a main are not
# looked at.
#
# usage: run_page.sh PAGE      (with TT_BUILD, TT_SOURCE and TUTTI in the environment, as tests have them)
set -eu
page=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $page: $*"; exit 1; }

# program-N.c or program-N.cpp, program-N.ranks and, where the page has it, program-N.output, numbered from 1.
awk -v work="$work" '
    function finish() {
        if ((kind == "c" || kind == "cpp") && text ~ /(^|\n)int main\(/) {
            n++
            printf "%s", text > (work "/program-" n "." kind)
            print ranks > (work "/program-" n ".ranks")
            expect = 1
        } else if (kind == "output") {
            if (!expect) { print "line " NR ": an output block that follows no program" > "/dev/stderr"; exit 1 }
            printf "%s", text > (work "/program-" n ".output")
            expect = 0
        }
        kind = ""
    }
    /^```/ && kind != "" { finish(); next }
    /^```/ {
        split(substr($0, 4), words, " ")
        kind = words[1] == "" ? "plain" : words[1]
        ranks = words[2] ~ /^ranks=[0-9]+$/ ? substr(words[2], 7) : 1
        text = ""
        next
    }
    kind != "" { text = text $0 "\n" }
    END { if (kind != "") { print "a block is not closed" > "/dev/stderr"; exit 1 } }
' "$page" || fail "its blocks can't be told apart"
[ -e "$work/program-1.ranks" ] || fail "no program found"

run() { # N: the program as it was built last
    ranks=$(cat "program-$1.ranks")
    if [ "$ranks" -gt 1 ]; then
        "$TUTTI" run --standalone --nproc-per-node="$ranks" "./program-$1"
    else
        "./program-$1"
    fi
}

cd "$work"
n=1
while [ -e "program-$n.ranks" ]; do
    tried=0
    source=program-$n.c compilers="gcc clang" standard=c11
    if [ -e "program-$n.cpp" ]; then
        source=program-$n.cpp compilers="g++ clang++" standard=c++17
    fi
    for compiler in $compilers; do
        command -v "$compiler" >/dev/null || continue
        [ $tried = 0 ] || [ "${TT_LONG:-0}" != 0 ] || continue # the gate takes the first one there is
        $compiler -std=$standard -pedantic-errors -Wall -Wextra -Werror -I"$TT_SOURCE/include" "$source" \
            -o "program-$n" -L"$TT_BUILD/lib" -Wl,-rpath,"$TT_BUILD/lib" -ltutti -ltutti-comm -lm ||
            fail "program $n with $compiler"
        run $n >"program-$n.printed" || fail "program $n, built by $compiler, ended with status $?"
        if [ -e "program-$n.output" ]; then
            diff "program-$n.output" "program-$n.printed" ||
                fail "program $n, built by $compiler, prints something else"
        fi
        tried=$((tried + 1))
    done
    [ $tried -gt 0 ] || fail "there is no compiler"
    echo "ok: program $n"
    n=$((n + 1))
done
