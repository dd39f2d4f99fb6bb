#!/usr/bin/env python3
"""Makes the reference of the C interface from the comments of the public headers.

  OUT/man3/NAME.3       a page for each entry, with links from the other names that it explains
  OUT/html/HEADER.html  a page for each header, and index.html

usage: tools/reference.py OUT [HEADER_FOLDER]       (default: include/tutti)

The headers are read as they are written: a comment explains the declarations below it up to the next blank line or
comment; "---- x" begins a section; a macro tt_x and the struct tt_x_args belong to the function tt_x_with; indented
lines of a comment are shown as they stand.
"""
import dataclasses
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# ---- reading


@dataclasses.dataclass
class Piece:
    """A comment, a preprocessor directive or a declaration, and whether a blank line stands before it."""
    kind: str
    text: str
    apart: bool


@dataclasses.dataclass
class Entry:
    """What one comment explains."""
    header: str
    section: tuple  # title, text
    comment: str = ""
    code: list = dataclasses.field(default_factory=list)
    names: list = dataclasses.field(default_factory=list)

    def page(self):
        return self.names[0]


@dataclasses.dataclass
class Header:
    name: str  # "comm"
    comment: str = ""
    parts: list = dataclasses.field(default_factory=list)  # ("section", title, text) or ("entry", Entry)
    file: str = ""  # "comm.h"

    def __post_init__(self):
        self.file = self.file or f"{self.name}.h"

    def entries(self):
        return [part[1] for part in self.parts if part[0] == "entry"]


def end_of_directive(text, at):
    """A directive goes on after a backslash, and to the end of a comment that it opens."""
    while True:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if line.count("/*") > line.count("*/"):
            at = text.index("*/", end)
        elif line.endswith("\\"):
            at = end + 1
        else:
            return end


def end_of_declaration(text, at):
    """Behind its semicolon or the body of an inline function, and behind a comment on the same line."""
    depth = 0
    for match in re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|[{}();]", re.S).finditer(text, at):
        token = match.group(0)
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(token, 0)
        is_function = "(" in re.sub(r"/\*.*?\*/", "", text[at:match.start()], flags=re.S).split("{")[0]
        if depth == 0 and (token == ";" or token == "}" and is_function):
            return re.compile(r"([ \t]*/\*.*?\*/)?", re.S).match(text, match.end()).end()
    raise ValueError(f"a declaration without end: {text[at:at + 60]!r}")


def pieces_of(text):
    at, pieces = 0, []
    while True:
        start = at
        at = re.compile(r"\s*").match(text, at).end()
        if at == len(text):
            return pieces
        apart = text[start:at].count("\n") > 1 or not pieces
        if text.startswith("/*", at):
            kind, end = "comment", text.index("*/", at) + 2
        elif text[at] == "#":
            kind, end = "directive", end_of_directive(text, at)
        elif match := re.compile(r"TT_(BEGIN|END)_DECLS\b|extern \"C\" \{").match(text, at):
            kind, end = "other", match.end()
        else:
            kind, end = "declaration", end_of_declaration(text, at)
        pieces.append(Piece(kind, text[at:end], apart))
        at = end


def comment_text(comment):
    """Without the stars and the spaces beside them; deeper indentation stays."""
    lines = comment[2:-2].split("\n")
    return "\n".join([lines[0].strip()] + [re.sub(r"^ \*? ?", "", line).rstrip() for line in lines[1:]]).strip()


def macro_name(directive):
    match = re.match(r"#\s*define\s+(\w+)", directive)
    return match.group(1) if match else None


def is_shown(macro, body):
    """Internals, include guards, what decorates declarations, and guards of a function's arguments are nobody's to
    use."""
    plumbing = re.sub(r"^#\s*define\s+\w+(\([^)]*\))?", "", body).strip()
    return (re.match(r"(tt|TT)_[A-Za-z]", macro) and not macro.endswith("_H") and plumbing
            and not re.match(rf"__attribute__(?!\(\(cleanup)|extern\b|\({macro}\)", plumbing))


def without_comments(code):
    return re.sub(r"/\*.*?\*/", "", code, flags=re.S)


def declared_names(code):
    """The functions and types that a declaration is about."""
    bare = without_comments(code)
    if re.match(r"\s*struct\s+\w+\s*;", bare):
        return []
    if re.match(r"\s*typedef\b", bare):
        found = re.search(r"\(\*\s*(\w+)\)\s*\(", bare) or re.search(r"(\w+)\s*\([^()]*\)\s*;\s*$", bare)
        found = re.search(r"}\s*(\w+)\s*;\s*$", bare) or found or re.search(r"(\w+)\s*;\s*$", bare)
        return [found.group(1)]
    found = re.search(r"\b(tt_\w+|tutti_\w+)\s*\(", bare) or re.search(r"\b((?:tt|tutti)_\w+)\s*;", bare)
    return [found.group(1)] if found else []


def constants_of(code):
    """Enumerators; and those that a list macro stands for: X(OK, "...") is TT_OK."""
    bare = without_comments(code)
    listed = ["TT_" + name for name in re.findall(r"\bX\((\w+),", bare)] if bare.startswith("#") else []
    match = re.search(r"\benum\b[^{]*\{([^}#]*)\}", bare)
    return listed + (re.findall(r"(?:^|,)\s*(TT_\w+)", match.group(1)) if match else [])


def read_header(name, text):
    header, section, entry = Header(name), ("", ""), None
    pieces = pieces_of(text)
    for number, piece in enumerate(pieces):
        is_last = number + 1 == len(pieces) or pieces[number + 1].apart
        if piece.kind == "comment":
            words, entry = comment_text(piece.text), None
            title = re.match(r"----\s*(.*?)\s*-*(\n|$)", words)
            if not header.comment:
                header.comment = words
            elif title:
                section = (title.group(1), words[title.end():].strip())
                header.parts.append(("section", *section))
            elif is_last:
                header.parts.append(("section", "", words))
            else:
                entry = Entry(name, section, words)
            continue
        if piece.apart:
            entry = None
        if piece.kind == "directive":
            macro = macro_name(piece.text)
            names = [macro] if macro and is_shown(macro, piece.text) else []
        else:
            names = declared_names(piece.text) if piece.kind == "declaration" else []
        if not names:
            continue
        if not entry:
            entry = Entry(name, section)
        if ("entry", entry) not in header.parts:
            header.parts.append(("entry", entry))
        entry.code.append(piece.text)
        entry.names += [one for one in names if one not in entry.names]
    return header


def read_cpp_header(name, text):
    """A C++ header: what each section offers, as its code stands, without include guards, internals and bodies."""
    header, lines = Header(name, file=f"{name}.hpp"), text.split("\n")
    header.comment = comment_text(text[:text.index("*/") + 2])
    body = "\n".join(line for line in lines if not line.startswith("#"))[text.index("*/") + 2:]
    body = body[body.index("namespace "):] if "namespace " in body else ""  # the sum of all parts has none
    body = re.sub(r"^namespace detail \{.*?^\} // namespace detail\n", "", body, flags=re.S | re.M)
    for part in re.split(r"(?=^/\* ---- )", body, flags=re.M):
        title = re.match(r"/\* ---- (.*?) \*/\n", part, flags=re.S)
        code = part[title.end():] if title else ""
        if code.strip():
            header.parts.append(("section", title.group(1), code_block(without_bodies(code))))
    return header


def without_bodies(code):
    """Functions without their bodies, classes without their private parts. Relies on the formatting."""
    code = re.sub(r"^ *private:\n.*?(?=^ *public:|^ *\};)", "", code, flags=re.S | re.M)
    shown, depth, comment = [], 0, False
    for line in code.split("\n"):
        comment = comment or line.lstrip().startswith("/*")
        if comment and not depth:
            shown.append(line)
        was_comment, comment = comment, comment and "*/" not in line
        if was_comment:
            continue
        change = line.count("{") - line.count("}")
        if depth:
            depth += change
            continue
        one_line = re.match(r"( *\S.*?\)(?: const)?(?: noexcept)?)(?: : .*)? \{.*\}$", line)
        if one_line:
            shown.append(one_line.group(1) + ";")
        elif change > 0 and line.endswith("{") and not re.search(r"\b(struct|class|namespace)\s\w+[^()]*\{$", line):
            depth = change
            if line.lstrip().startswith(": "):  # what a constructor begins with
                shown[-1] += ";"
            else:
                shown.append(re.sub(r"(?: : .*)? \{$", ";", line))
        else:
            shown.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(shown))


def code_block(code):
    """As an indented block of a comment, which is shown as it stands."""
    return "\n".join("  " + (line or " ") for line in code.strip("\n").split("\n"))


# ---- putting together what belongs together


def function_of(macro):
    """What a macro with options calls: tt_sum() tt_sum_with(), tt_clip_grad_norm_() tt_clip_grad_norm_with()."""
    return macro + ("with" if macro.endswith("_") else "_with")


def owner_of(name, code, functions):
    """The function that an uncommented macro or struct belongs to, or None."""
    if function_of(name) in functions:
        return function_of(name)
    if match := re.fullmatch(r"TT_(\w+)_INIT", name):
        name = "tt_" + match.group(1).lower()
    if name.endswith("_args"):
        users = [f for f, entry in functions.items()
                 if any(re.search(rf"\b{name}\s*\*", part) and f in declared_names(part) for part in entry.code)]
        return users[0] if users else None
    if code.startswith("#") and "(" in code.split("\n")[0]:
        called = [f for f in re.findall(r"\btt_\w+(?=\()", code) if f in functions]
        return called[0] if called else None
    return None


def gather(headers):
    """A function's macro, its struct of arguments and what has no comment of its own move to the function's entry."""
    functions = {name: entry for header in headers for entry in header.entries() for code in entry.code
                 if not code.startswith(("#", "typedef")) for name in declared_names(code)}
    for header in headers:
        for entry in header.entries():
            for code in list(entry.code):
                name = macro_name(code) or declared_names(code)[0]
                owner = functions.get(owner_of(name, code, functions))
                belongs = function_of(name) in functions or name.endswith("_INIT") or not entry.comment
                if owner and owner is not entry and belongs:
                    move(name, code, entry, owner)
        header.parts = [part for part in header.parts if part[0] == "section" or part[1].code]
        for entry in header.entries():
            entry.names = sorted(entry.names, key=lambda name: rank_of(name, entry.names))
    return headers


def move(name, code, entry, owner):
    entry.code.remove(code)
    entry.names = [other for other in entry.names if other != name]
    owner.code.insert(0 if code.startswith("typedef") else len(owner.code), code)
    owner.names += [name] if name not in owner.names else []


def rank_of(name, names):
    """A function's macro is what people call; then functions; then types and initialisers."""
    if function_of(name) in names:
        return 0
    return 2 if name.endswith(("_args", "_INIT")) else 1


def synopsis(entry):
    """Code as shown: a macro over a function with the arguments it requires instead of its expansion."""
    shown = []
    for code in entry.code:
        name = macro_name(code)
        match = re.match(r"#\s*define\s+(tt_\w+)\(([^)]*)\)", code.replace("\\\n", " "))
        if name and name.endswith("_ARGS_INIT"):
            continue
        if match:
            required = [word.strip().rstrip("_") for word in match.group(2).split(",") if word.strip() != "..."]
            last = re.search(r"\.(\w+)\s*=\s*__VA_ARGS__", code)
            required += [last.group(1)] if last else []
            shown.append(f"{match.group(1)}({', '.join(required + ['...'])})")
        else:
            shown.append(re.sub(r"^(static inline )(.*?)\s*\{.*\}\s*$", r"\1\2;", code, flags=re.S)
                         if code.startswith("static inline") else re.sub(r"\bTT_(API|EXTERN|NODISCARD) ", "", code))
    shown.sort(key=lambda code: not re.match(r"tt_\w+\(", code))
    return shown


def blocks_of(text):
    """("text", line) and ("code", lines) of a comment."""
    blocks = []
    for line in text.split("\n"):
        kind = "code" if line.startswith("  ") else "text"
        begins = re.match(r"(Errors|Success|Failure|Threads|Ownership|PyTorch): ", line) or not line
        if not line:
            blocks.append(["gap", ""])
        elif blocks and blocks[-1][0] == kind and not (begins and kind == "text"):
            blocks[-1][1] += ("\n" if kind == "code" else " ") + line
        else:
            blocks.append([kind, line])
    return [(kind, words) for kind, words in blocks if kind != "gap"]


def summary(entry):
    """The first sentence, for the NAME line of a page."""
    first = next((words for kind, words in blocks_of(entry.comment) if kind == "text"), "")
    sentence = re.split(r"(?<=[^.])[.;:](?:\s|$)", first)[0]
    return sentence or f"declared in tutti/{entry.header}.h"


# ---- manual pages


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "")
    return re.sub(r"^\.", r"\\&.", text, flags=re.M)


def man_code(lines):
    return ".PP\n.nf\n.RS 4\n" + roff(lines) + "\n.RE\n.fi\n"


def man_text(text):
    return "".join(man_code(words) if kind == "code" else f".PP\n{roff(words)}\n" for kind, words in blocks_of(text))


def man_page(entry, version, others):
    title = entry.page()
    page = [f'.TH {title} 3 "" "Tutti {version}" "Tutti"\n.SH NAME\n',
            f"{roff(', '.join(entry.names))} \\- {roff(summary(entry))}\n.SH SYNOPSIS\n",
            man_code(f"#include <tutti/{entry.header}.h>")]
    page += [man_code(code) for code in synopsis(entry)]
    if entry.comment:
        page.append(".SH DESCRIPTION\n" + man_text(entry.comment))
    if entry.section[1]:
        page.append(f".SH {roff(entry.section[0]).upper()}\n" + man_text(entry.section[1]))
    page.append(f".SH SEE ALSO\n.BR tutti_{entry.header}.h (3)")
    page += [f",\n.BR {other} (3)" for other in others]
    return "".join(page) + "\n"


def header_page(header, version):
    page = [f'.TH tutti_{header.file} 3 "" "Tutti {version}" "Tutti"\n.SH NAME\n',
            f"tutti_{header.file} \\- {roff(header_summary(header))}\n.SH SYNOPSIS\n",
            man_code(f"#include <tutti/{header.file}>"), ".SH DESCRIPTION\n",
            man_text(header.comment.split(": ", 1)[-1])]
    for part in header.parts:
        if part[0] == "section":
            page.append((f".SS {roff(part[1])}\n" if part[1] else "") + man_text(part[2]))
        else:
            page.append(f".TP\n.BR {part[1].page()} (3)\n{roff(summary(part[1]))}\n")
    return "".join(page)


def header_summary(header):
    first = header.comment.split(": ", 1)[-1]
    return re.split(r"[.](?:\s|$)", first)[0].replace("\n", " ")


def related(entry, header, pages):
    """Pages of what the declarations name, and the nearest ones of the same section."""
    named = [pages[word] for word in re.findall(r"\b(?:tt|TT)_\w+", without_comments("\n".join(synopsis(entry))))
             if word in pages]
    same = [other for other in header.entries() if other.section == entry.section]
    at = same.index(entry)
    near = [other.page() for other in same[max(0, at - 3):at + 4]]
    return [page for page in dict.fromkeys(named + near) if page != entry.page()]


def write_man(headers, version, folder):
    folder.mkdir(parents=True, exist_ok=True)
    pages = {name: entry.page() for header in headers for entry in header.entries() for name in entry.names}
    for header in headers:
        (folder / f"tutti_{header.file.replace('/', '_')}.3").write_text(header_page(header, version))
        for entry in header.entries():
            (folder / f"{entry.page()}.3").write_text(man_page(entry, version, related(entry, header, pages)))
            for name in entry.names[1:]:
                (folder / f"{name}.3").write_text(f".so man3/{entry.page()}.3\n")


# ---- HTML


def page_of(header):
    return header.file.removesuffix(".h").replace("/", "_") + ".html"


STYLE = """body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
body { color: #222; background: #fff }
pre { background: #f4f4f4; padding: .6em .8em; overflow-x: auto; font-size: 14px } code { background: #f4f4f4 }
h2 { border-bottom: 1px solid #ccc; margin-top: 2em } h3 { margin: 2em 0 .3em; font-family: monospace }
a { color: #0645ad; text-decoration: none } a:hover { text-decoration: underline }
ul.names { columns: 18em; padding-left: 1em; font-family: monospace }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } pre, code { background: #262626 }
a { color: #8ab4f8 } }"""


class Links:
    """Where each name is explained."""

    def __init__(self, headers):
        self.target = {f"tutti/{header.file}": f"{page_of(header)}" for header in headers}
        for header in headers:
            for entry in header.entries():
                for name in entry.names + [constant for code in entry.code for constant in constants_of(code)]:
                    self.target.setdefault(name, f"{page_of(header)}#{entry.page()}")

    def link(self, text):
        """Escape `text`, and make links of the names in it."""
        def replace(match):
            target = self.target.get(match.group(0))
            return f'<a href="{target}">{match.group(0)}</a>' if target else match.group(0)
        names = r"\b(?:tutti/[\w/]+\.h(?:pp)?|tt_\w+|TT_\w+|tutti_\w+)\b"
        return re.sub(names, replace, html.escape(text, quote=False))


def html_text(text, links):
    shown = []
    for kind, words in blocks_of(text):
        if kind == "code":
            shown.append(f"<pre>{links.link(words)}</pre>")
        else:
            shown.append("<p>" + re.sub(r"`([^`]*)`", r"<code>\1</code>", links.link(words)) + "</p>")
    return "\n".join(shown)


def html_page(title, body, version):
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n{body}\n'
            f"<hr><p>Tutti {version}</p></body></html>\n")


def html_header(header, links, version):
    body = [f'<p><a href="index.html">Tutti</a></p><h1>tutti/{header.file}</h1>',
            html_text(header.comment.split(": ", 1)[-1], links)]
    for part in header.parts:
        if part[0] == "section":
            body.append((f"<h2>{html.escape(part[1])}</h2>" if part[1] else "") + html_text(part[2], links))
            continue
        entry = part[1]
        anchors = "".join(f'<a id="{name}"></a>' for name in entry.names[1:])
        body.append(f'<h3 id="{entry.page()}">{anchors}{", ".join(entry.names)}</h3>')
        body.append("<pre>" + "\n".join(links.link(code) for code in synopsis(entry)) + "</pre>")
        body.append(html_text(entry.comment, links))
    return html_page(f"tutti/{header.file}", "\n".join(body), version)


def html_index(headers, version):
    rows = [f'<li><a href="{page_of(header)}">tutti/{header.file}</a>: {html.escape(header_summary(header))}</li>'
            for header in headers]
    names = sorted((name, f"{page_of(header)}#{entry.page()}") for header in headers for entry in header.entries()
                   for name in entry.names)
    words = [f'<li><a href="{target}">{name}</a></li>' for name, target in names]
    body = ["<h1>Tutti: the C interface</h1><ul>", *rows, '</ul><h2>All names</h2><ul class="names">', *words, "</ul>"]
    return html_page("Tutti: the C interface", "\n".join(body), version)


def write_html(headers, version, folder):
    folder.mkdir(parents=True, exist_ok=True)
    links = Links(headers)
    for header in headers:
        (folder / f"{page_of(header)}").write_text(html_header(header, links, version))
    (folder / "index.html").write_text(html_index(headers, version))


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[1])
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "include" / "tutti"
    texts = {path.stem: path.read_text() for path in sorted(folder.glob("*.h"))}
    version = ".".join(re.search(rf"#define TT_VERSION_{part} (\d+)", texts["base"]).group(1)
                       for part in ("MAJOR", "MINOR", "PATCH"))
    headers = gather([read_header(name, text) for name, text in texts.items()])
    headers += [read_cpp_header(str(path.relative_to(folder).with_suffix("")), path.read_text())
                for path in [*sorted(folder.glob("*.hpp")), *sorted(folder.glob("cpp/*.hpp"))]]
    for kind in ("man3", "html"):
        for old in (out / kind).glob("*"):
            old.unlink()
    write_man(headers, version, out / "man3")
    write_html(headers, version, out / "html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
