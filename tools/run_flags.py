#!/usr/bin/env python3
"""Make from the table of the flags of `tutti run` what the documentation says of them.

    tools/run_flags.py [--check]

src/cli/run/run_flags.def has a row for each flag. Of these rows are made the flags of docs/man/tutti-run.1, the list in
docs/man/tutti-launch.1, and the table and the list of Tutti's own flags in docs/launch/torchrun.md, each between two
lines that say so. --check changes nothing and prints what differs, as lint does. Help, completion and parsing are made
from the same rows, by the compiler (src/cli/run/run_flags.c)."""
import ast
import collections
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = "src/cli/run/run_flags.def"
BEGIN, END = f"Made of {TABLE} by tools/run_flags.py", "Made until here"
COLUMNS = 120
KINDS = {"SWITCH", "TEXT", "CHOICE", "NUMBER", "SECONDS"}

# A row. value: its name in the help, "" of a switch. help: None if it is hidden; more: for the manual page alone.
# torchrun: None if torchrun does not have the flag.
Flag = collections.namedtuple("Flag", "heading field name letter kind may_be_empty value help more default torchrun")


class Mistake(Exception):
    pass


# ---- the table

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'.\'|[A-Za-z_]\w*|\d+|[(),<|+-]')


def tokens(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return TOKEN.findall(re.sub(r"^#.*$", "", text, flags=re.M))


def split_call(words, at):
    """The arguments of the call whose "(" is words[at], and where it ends."""
    arguments, depth = [[]], 1
    while depth:
        at += 1
        word = words[at]
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 1:
            arguments.append([])
        elif depth:
            arguments[-1].append(word)
    return arguments, at + 1


def joined(words):
    """The text of C strings that stand side by side."""
    return "".join(ast.literal_eval(word) for word in words if word.startswith('"'))


def of_call(words, name):
    """The text in NAME(...) among the words; None: it is not there."""
    if name not in words:
        return None
    arguments, _ = split_call(words, words.index(name) + 1)
    return joined(arguments[0])


def read_kind(words):
    may_be_empty = words[0] == "OR_NONE"
    words = words[2:-1] if may_be_empty else words
    if words[0] not in KINDS:
        raise Mistake(f"{words[0]} is no kind of flag: expected one of {', '.join(sorted(KINDS))}")
    if words[0] in ("SWITCH", "SECONDS"):
        return words[0], may_be_empty, "" if words[0] == "SWITCH" else "SECONDS"
    return words[0], may_be_empty, joined(split_call(words, 1)[0][0])


def read_row(heading, arguments):
    field, name, letter, kind, text, fallback, torchrun = arguments
    more = text.index("MORE") if "MORE" in text else len(text)
    flag = Flag(heading, field[0], joined(name), letter[0].strip("'") if letter != ["0"] else "", *read_kind(kind),
                None if text == ["HIDDEN"] else joined(text[:more]), of_call(text, "MORE") or "",
                of_call(fallback, "DEFAULT"), of_call(torchrun, "TORCHRUN"))
    if flag.field != flag.name.replace("-", "_"):
        raise Mistake(f"the field of --{flag.name} is {flag.field}: expected {flag.name.replace('-', '_')}")
    if flag.help is None and flag.torchrun is None:
        raise Mistake(f"--{flag.name} is hidden, and torchrun does not have it: nobody can learn of it")
    return flag


def read_table(text):
    words, flags, heading, at = tokens(text), [], "", 0
    while at < len(words):
        if words[at] not in ("HEADING", "FLAG") or words[at + 1] != "(":
            raise Mistake(f"expected HEADING(...) or FLAG(...), got {words[at]}")
        arguments, end = split_call(words, at + 1)
        if words[at] == "HEADING":
            heading = joined(arguments[0]).rstrip(":")
        else:
            flags.append(read_row(heading, arguments))
        at = end
    names = [flag.name for flag in flags]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise Mistake(f"--{name} has several rows")
    return flags


def table():
    return read_table((ROOT / TABLE).read_text())


# ---- what is made

def roff_text(text):
    """Lines of a paragraph, with flags in bold."""
    for line in textwrap.wrap(text, COLUMNS - 20, break_long_words=False, break_on_hyphens=False):
        line = line.replace("\\", r"\e")
        line = re.sub(r"(?<![\w-])--?[a-z][a-z-]*[a-z]", lambda m: rf"\fB{m[0]}\fR".replace("-", r"\-"), line)
        yield rf"\&{line}" if line[0] in ".'" else line


def sentence(text):
    """Names stay as they are."""
    first = re.match(r"[a-z]+(?=[ ,;])", text)
    return f"{text[0].upper() if first and first[0] != 'tutti' else text[0]}{text[1:]}."


def manual(flags):
    """The flags, under their headings."""
    heading = None
    for flag in flags:
        if flag.help is None:
            continue
        if flag.heading != heading:
            heading = flag.heading
            yield f".SS {heading}"
        letter = rf"\fB\-{flag.letter}\fR, " if flag.letter else ""
        name = flag.name.replace("-", r"\-")
        yield ".TP"
        yield rf"{letter}\fB\-\-{name}" + (rf"=\fI{flag.value}\fR" if flag.value else r"\fR")
        default = f" (default {flag.default})" if flag.default else ""
        yield from roff_text(sentence(flag.help + default))
        yield from roff_text(flag.more)


def launch_manual(flags):
    """The names of those that tutti-launch.1 does not explain itself."""
    for flag in flags:
        if flag.help is not None and flag.name not in ("use-env", "local-rank-name", "no-python"):
            yield r".B \-\-" + flag.name.replace("-", r"\-")


def torchrun_page(flags):
    yield "| flag | here |"
    yield "| --- | --- |"
    for flag in flags:
        if flag.torchrun is not None:
            letter = f"`-{flag.letter}`, " if flag.letter else ""
            yield f"| {letter}`--{flag.name}` | {flag.torchrun} |"


def own_flags(flags):
    names = [f"`--{flag.name}`" for flag in flags if flag.torchrun is None and flag.name not in ("use-env",
                                                                                               "local-rank-name")]
    text = f"Tutti's own flags are {', '.join(names)}, and for `tutti launch` `--use-env` and `--local-rank-name`."
    yield from textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


# File, how the two lines around what is made begin and end, and what is made, in order.
PAGES = (("docs/man/tutti-run.1", '.\\" ', "", (manual,)), ("docs/man/tutti-launch.1", '.\\" ', "", (launch_manual,)),
         ("docs/launch/torchrun.md", "<!-- ", " -->", (torchrun_page, own_flags)))


def made_page(text, name, before, after, makers, flags):
    """The text with what is made between its pairs of lines."""
    begin, end = f"{before}{BEGIN}{after}\n", f"{before}{END}{after}\n"
    parts = text.split(begin)
    if len(parts) != len(makers) + 1 or any(end not in part for part in parts[1:]):
        raise Mistake(f"{name}: expected {len(makers)} times the lines \"{begin.strip()}\" and \"{end.strip()}\"")
    blank = "\n" if after else ""
    for i, maker in enumerate(makers, 1):
        rest = parts[i].partition(end)[2]
        parts[i] = begin + blank + "\n".join(maker(flags)) + "\n" + blank + end + rest
    return "".join(parts)


def all_made():
    flags = table()
    for name, before, after, makers in PAGES:
        path = ROOT / name
        yield path, made_page(path.read_text(), name, before, after, makers, flags)


def findings():
    """For lint: what is not as it would be made."""
    try:
        for path, text in all_made():
            if path.read_text() != text:
                yield str(path.relative_to(ROOT)), 0, f"is not what tools/run_flags.py makes of {TABLE}; run it"
    except Mistake as mistake:
        yield TABLE, 0, str(mistake)


def main():
    if sys.argv[1:] == ["--check"]:
        found = list(findings())
        for name, _, text in found:
            print(f"{name}: {text}")
        return 1 if found else 0
    try:
        for path, text in all_made():
            path.write_text(text)
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
