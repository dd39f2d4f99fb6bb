#!/usr/bin/env python3
"""Wraps comments at 120 columns, in place: those of C and C++, "#" comments of Python, shell and CMake, docstrings; and
the text of Markdown, whose code blocks, tables, headings and HTML stay.

Only paragraphs with a line that is too long change. A list item (its lines are indented; a description after two or
more spaces keeps its column) is a paragraph of its own. A long comment behind code moves above its line. Lines of code
are left alone: ./dev lint names them.

usage: tools/wrap.py FILE...
"""
import pathlib
import re
import sys
import textwrap

WIDTH = 120


def fill(text, first, rest):
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)


def indentation(line):
    return len(line) - len(line.lstrip())


def hanging(line):
    """The column of a list item's text: behind the last gap of its term, else behind its bullet or indentation."""
    gaps = [gap.end() for gap in re.finditer(r"(?<=\S)  +(?=\S)", line[:48])] if line.startswith("  ") else []
    bullet = re.match(r"\s*(?:[-*]|\d+[.)]) +", line)
    return gaps[-1] if gaps else bullet.end() if bullet else indentation(line)


def starts_paragraph(line, paragraph):
    """Does this line of a comment's text begin a paragraph of its own, or belong to the one before?"""
    first, previous = paragraph[0], paragraph[-1]
    if not previous.strip() or re.match(r"\s*(?:[-*]|\d+[.)]) ", line):
        return True
    if len(paragraph) > 1 and indentation(previous) != indentation(first):
        return indentation(line) != indentation(previous)
    if indentation(line) == indentation(first):
        item = hanging(first) != indentation(first)
        label = re.match(r"[\w.,`*()/ -]{1,30}: ", line) and previous.rstrip().endswith(".")
        return item or bool(label) or (previous.rstrip().endswith((".", ":")) and len(previous) < 95)
    return indentation(line) != hanging(first)


def wrap_text(lines, prefix):
    """Wraps the lines of a comment's text, each of which is to stand behind `prefix`."""
    paragraphs = []
    for line in lines:
        if not line.strip() or not paragraphs or starts_paragraph(line, paragraphs[-1]):
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
    done = []
    for paragraph in paragraphs:
        if all(len(prefix + line) <= WIDTH for line in paragraph):
            done += [(prefix + line).rstrip() for line in paragraph]
            continue
        head, hang = paragraph[0], hanging(paragraph[0])
        text = " ".join([head.strip()] + [line.strip() for line in paragraph[1:]])
        term = head[:hang].rstrip() if head[:hang].strip() else ""
        if term:
            text = " ".join([head[hang:].strip()] + [line.strip() for line in paragraph[1:]])
        done += fill(text, prefix + head[:hang], prefix + " " * hang)
    return done


def wrap_block(comment, indent):
    """A block comment that starts at column `indent`; its lines again."""
    body = comment[2:-2].strip("\n")
    lines = [re.sub(r"^\s*\* ?", "", line) for line in body.split("\n")]
    lines[0] = body.split("\n")[0].lstrip()
    lines[-1] = lines[-1].rstrip()
    if not lines[-1]:
        lines.pop()
    lines[-1] += "\0" * 3  # room for the end of the comment
    prefix = " " * indent + " * "
    out = wrap_text(lines, prefix)
    out = [line.rstrip("\0") for line in out]
    return " " * indent + "/* " + out[0][len(prefix):] + "".join("\n" + line for line in out[1:]) + " */"


def wrap_c(text):
    pieces, at = [], 0
    for match in re.finditer(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', text, flags=re.S):
        start, end = match.span()
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        span = text[line_start:line_end]
        if not match.group(0).startswith("/*") or all(len(line) <= WIDTH for line in span.split("\n")):
            continue
        before, after = text[line_start:start], text[end:line_end]
        if after.strip() or line_start < at or before.lstrip().startswith(("#", "}")) or before.rstrip().endswith("\\"):
            continue
        indent = len(before) - len(before.lstrip())
        pieces.append(text[at:line_start])
        if before.strip():
            joined = " ".join(re.sub(r"^\s*\* ?", "", line).strip() for line in match.group(0)[2:-2].split("\n"))
            pieces.append(wrap_block(f"/* {joined.strip()} */", indent) + "\n" + before.rstrip())
        else:
            pieces.append(wrap_block(match.group(0), indent))
        at = line_end
    return "".join(pieces) + text[at:]


def wrap_lines(text, marker):
    """Comments of whole lines, each of which begins with the marker."""
    lines, out, i = text.split("\n"), [], 0
    while i < len(lines):
        match = re.match(rf"(\s*{marker} )\S", lines[i])
        block = []
        while match and i < len(lines) and lines[i].startswith(match.group(1)):
            block.append(lines[i][len(match.group(1)):])
            i += 1
        if block:
            out += wrap_text(block, match.group(1))
        else:
            out.append(lines[i])
            i += 1
    return "\n".join(out)


def wrap_docstrings(text):
    def wrap_one(match):
        if max(map(len, match.group(0).split("\n"))) <= WIDTH:
            return match.group(0)
        indent, lines = match.group(1), match.group(2).split("\n")
        lines[1:] = [line[len(indent):] if line.startswith(indent) else line.lstrip() for line in lines[1:]]
        lines[0] = '"""' + lines[0]
        closed = lines[-1].strip() == ""
        lines = wrap_text(lines[:-1] if closed else lines[:-1] + [lines[-1] + '"""'], indent)
        return "\n".join(lines + [indent + '"""'] if closed else lines)
    return re.sub(r'^( *)"""(.*?)"""', wrap_one, text, flags=re.S | re.M)


def keep_together(code):
    return code.replace(" ", "\0") if len(code) < 60 else code


def fill_markdown(paragraph):
    """A paragraph or list item again, on as few lines as it takes: words that would begin something else at the start
    of a line stay behind the word before them, and short pieces of code stay whole."""
    head = re.match(r"\s*(?:(?:[-*+]|\d+[.)])\s+)?", paragraph[0]).group(0)
    text = " ".join([paragraph[0][len(head):].strip()] + [line.strip() for line in paragraph[1:]])
    text = re.sub(r" (?=(?:[-*+>|]|#+|\d+[.)])(?: |$))", "\0", text)
    text = re.sub(r"`[^`]+`", lambda code: keep_together(code.group(0)), text)
    return [line.replace("\0", " ") for line in fill(text, head, " " * len(head))]


def wrap_markdown(text):
    out, paragraph, fence = [], [], False

    def end_paragraph():
        fits = all(len(line) <= WIDTH for line in paragraph)
        out.extend(paragraph if fits else fill_markdown(paragraph))
        paragraph.clear()

    for line in text.split("\n"):
        border = line.lstrip().startswith("```")
        if fence or border or not line.strip() or line.lstrip().startswith(("|", "#", "<", ">")):
            end_paragraph()
            out.append(line)
            fence ^= border
            continue
        if re.match(r"\s*(?:[-*+]|\d+[.)])\s", line):
            end_paragraph()
        paragraph.append(line)
    end_paragraph()
    return "\n".join(out)


def wrap(text, suffix):
    if suffix == ".md":
        return wrap_markdown(text)
    if suffix in (".c", ".h", ".cc", ".cpp", ".hpp"):
        return wrap_lines(wrap_c(text), "//")
    text = wrap_lines(text, "#")
    return wrap_docstrings(text) if suffix == ".py" else text


def main():
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        before = path.read_text()
        after = wrap(before, path.suffix)
        if after != before:
            path.write_text(after)


if __name__ == "__main__":
    main()
