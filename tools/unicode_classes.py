#!/usr/bin/env python3
"""Writes src/data/text/unicode_classes.c: which characters Unicode calls letters and numbers, as ranges. They come from
the Python module regex, with which GPT-2's own tokenizer looks for them, and which knows a newer Unicode than Python.
usage: tools/unicode_classes.py"""
import pathlib
import sys

import regex

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/data/text/unicode_classes.c"
HEAD = """/* Made by tools/unicode_classes.py with regex {version}: first and last character of each range. */
#include "data/text/unicode_classes.h"

#include <stddef.h>

typedef struct range {{
    uint32_t first, last;
}} range;
"""
TAIL = """
static bool in_ranges(const range *ranges, size_t n, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ranges[low].first <= c;
}

bool tt__is_letter(uint32_t c) { return in_ranges(letters, sizeof letters / sizeof *letters, c); }

bool tt__is_number(uint32_t c) { return in_ranges(numbers, sizeof numbers / sizeof *numbers, c); }

bool tt__is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
"""


def ranges(letter):
    found, pattern = [], regex.compile(rf"\p{{{letter}}}")
    for c in range(sys.maxunicode + 1):
        if pattern.match(chr(c)):
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


def table(name, letter):
    text = f"\n/* clang-format off */\nstatic const range {name}[] = {{\n"
    line = "   "
    for first, last in ranges(letter):
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 120:
            text += line + "\n"
            line = "   "
        line += item
    return text + line + "\n};\n/* clang-format on */\n"


def main():
    OUT.write_text(HEAD.format(version=regex.__version__) + table("letters", "L") + table("numbers", "N") +
                   TAIL)


if __name__ == "__main__":
    main()
