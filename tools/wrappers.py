#!/usr/bin/env python3
"""Make the C++ wrappers of include/tutti/cpp from the C headers and tools/wrappers/NAME.hpp.in.

    tools/wrappers.py [--check]

A template is C++. Statements that begin with @ at the left margin and end with a semicolon are replaced:

    @struct NAME of tt_ARGS: member member=value ...;
        An options struct. Types come from the C struct, and values that are not given are zero. A member X of a C field
        no_X is its negation. A comment behind a member is kept.
    @ RETURN NAME(PARAMETERS) parameter: field, parameter: data count, -field ... = tt_FUNCTION;
        A function that fills the args struct of the C function, or calls one without args. What comes behind ) is
        optional: parameters whose C fields have other names, fields and members that the function leaves alone (-), and
        the C function where its name is not tt_NAME, tt_NAME_with or one with the namespace's prefix.
    @rest;
        All functions of the C header that take only tensors and numbers, and that the template does not name.

A field of the C struct that no parameter and no member gives a value is an error: C++ never lacks an option of C."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "include" / "tutti"
TEMPLATES = ROOT / "tools" / "wrappers"
SCALARS = {"int64_t": "std::int64_t", "uint64_t": "std::uint64_t", "double": "double", "bool": "bool", "int": "int",
           "size_t": "std::size_t"}
ROOM = 112  # columns of one statement in a body
STATEMENT = r"(?:[^;/]|/(?!\*)|/\*.*?\*/)*"  # up to its semicolon


class Mistake(Exception):
    """A template and the C headers don't fit."""


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def split(text, at=","):
    """Split at `at` outside of all brackets."""
    parts, depth, last = [], 0, ""
    for char in text:
        depth += (char in "([{<") - (char in ")]}>")
        if char == at and depth == 0:
            parts.append(last.strip())
            last = ""
        else:
            last += char
    return [part for part in [*parts, last.strip()] if part]


def declarators(statement):
    """"tt_tensor *a, **b" -> [("tt_tensor *", "a"), ("tt_tensor **", "b")]; arrays have their type end in []."""
    match = re.match(r"((?:const |struct )*\w+(?: const)?)\s*(.*)", statement.strip(), flags=re.S)
    base, names = match.groups()
    for name in split(names):
        name, array = re.match(r"([^\[]*)(\[.*)?", name).groups()
        stars = name.count("*")
        yield base + (" " + "*" * stars if stars else "") + ("[]" if array else ""), name.replace("*", "").strip()


def struct_fields(body):
    fields = {}
    for statement in without_comments(body).split(";"):
        if statement.strip() and "TT_OPTIONS" not in statement and "(" not in statement:
            fields.update((name, type) for type, name in declarators(statement) if name != "tt_end")
    return fields


class Headers:
    """What the C headers declare: args structs and functions."""

    def __init__(self):
        self.structs, self.functions, self.of_header = {}, {}, {}
        for path in sorted(INCLUDE.glob("*.h")):
            text = without_comments(path.read_text())
            for name, body in re.findall(r"typedef struct (\w+_args) \{(.*?)\n\} \1;", text, flags=re.S):
                self.structs[name] = struct_fields(body)
            for returns, name, args in re.findall(
                    r"^TT_API\s+((?:TT_NODISCARD )?[\w ]+?[ *]+)(tt_\w+)\(([^;()]*)\)[\w ]*;", text, flags=re.M):
                args = [] if args.strip() == "void" else split(args.replace("...", ""))
                parameters = [next(declarators(one)) for one in args]
                self.functions[name] = (returns.replace("TT_NODISCARD", "").strip(), parameters)
                self.of_header.setdefault(path.stem.removeprefix("nn_"), []).append(name)  # nn_functional


def member_type(fields, name):
    """The C++ type and the zero of an option."""
    c_type = fields.get(name) or fields.get("no_" + name)
    if c_type is None:
        raise Mistake(f"no option {name}")
    if name + "_hw" in fields:
        return "pair_hw", "{}"
    if c_type == "tt_tensor *":
        return "tensor_ref", "nullptr"
    if c_type in SCALARS:
        return SCALARS[c_type], "false" if c_type == "bool" else "0"
    if c_type == "tt_dtype":
        return c_type, "TT_F32"
    return c_type, "nullptr" if c_type.endswith("*") else None


def declared(type, name, value):
    return f"    {type}{'' if type.endswith('*') else ' '}{name} = {value};"


def struct_of(headers, statement):
    name, source, members = re.fullmatch(r"(\w+) of (\w+):(.*)", statement, flags=re.S).groups()
    fields, lines = headers.structs[source], []
    for item in re.findall(r"/\*.*?\*/|\w+(?:=\S+)?", " ".join(members.split())):
        if item.startswith("/*"):
            lines[-1] += " " + item
            continue
        member, _, value = item.partition("=")
        type, zero = member_type(fields, member)
        if not value and zero is None:
            raise Mistake(f"{name}: {member} of type {type} needs a value")
        lines.append(declared(type, member, value or zero))
    return f"struct {name} {{\n" + "\n".join(lines) + "\n};\n\n"


def options_members(text):
    """The members of all C++ structs named ..._options, with their types."""
    found = {}
    for name, body in re.findall(r"^struct (\w+_options) \{\n(.*?)^\};", text, flags=re.M | re.S):
        found[name] = {}
        for statement in without_comments(body).split(";"):
            if not statement.strip():
                continue
            match = re.match(r"\s*((?:const )?[\w:]+(?:<[^>]*>)?)\s+(.*)", statement, flags=re.S)
            for part in split(match.group(2)):
                member = re.match(r"\**(\w+)", part).group(1)
                found[name][member] = match.group(1) + (" *" if part.startswith("*") else "")
    return found


def converted(field, c_type, type, value):
    """The statements that give a C field the value of a C++ expression of `type`."""
    plain = type.replace("const ", "").rstrip(" &")
    if plain == "pair_hw":
        return None, f"{value}.put(a.{field}, a.{field}_hw);"
    if c_type.endswith("[]"):
        return None, f"std::copy(std::begin({value}), std::end({value}), a.{field});"
    if plain.startswith("std::optional") and c_type.endswith("*"):
        return f"a.{field} = {value} ? &*{value} : nullptr", None
    if plain.startswith("std::optional"):
        return f"a.{field} = {{{value}.has_value(), {value}.value_or(0)}}", None
    if c_type == "tt_index":
        return f"a.{field} = {{true, {value}}}", None
    if plain == "std::string":
        return f"a.{field} = {value}.c_str()", None
    of_object = re.fullmatch(r"(?:const )?tt_\w+ \*", c_type) and not plain.startswith("tt_")
    if of_object and plain.endswith("*"):
        return f"a.{field} = {value} ? {value}->get() : nullptr", None
    if of_object:
        return f"a.{field} = {value}.{'get' if '&' in type or plain == 'tensor_ref' else 'release'}()", None
    return f"a.{field} = {value}", None


def packed(assignments):
    """As few statements as fit into lines."""
    lines = []
    for one in assignments:
        if lines and len(lines[-1]) + len(one) < ROOM:
            lines[-1] += ", " + one
        else:
            lines.append(one)
    return [line + ";" for line in lines]


class Part:
    """One header that is being made; `options` has the structs of all headers."""

    def __init__(self, headers, name, options):
        self.headers, self.name, self.options, self.namespace = headers, name, options, ""
        self.text = self.with_structs((TEMPLATES / f"{name}.hpp.in").read_text())

    def with_structs(self, text):
        made = re.sub(r"^@struct (" + STATEMENT + r");\n", lambda m: struct_of(self.headers, m.group(1)), text,
                      flags=re.M | re.S)
        self.options.update(options_members(made))
        return made

    def c_function(self, name, given):
        stems = [f"tt_{self.namespace}{name}", f"tt_{self.namespace}{name}".rstrip("_")]
        names = [given] if given else [stem + end for stem in stems for end in ("_with", "")]
        for one in names:
            if one in self.headers.functions:
                return one
        raise Mistake(f"{name}(): no header declares {' or '.join(names)}")

    def returned(self, returns, c_name, arguments, first):
        call = f"{c_name}({arguments})" if not c_name.endswith("_with") else f"detail::call({c_name}, {arguments})"
        if returns == "void":
            return f"{call};" if self.headers.functions[c_name][0] == "void" else f"check({call});"
        if returns == "tensor &":
            return f"return check({call}), {first};"
        if re.fullmatch(r"(const )?tt_\w+ \*", returns):
            return f"return check({call});"
        plain = self.headers.functions[c_name][0] in (*SCALARS, "const char *")
        return f"return {call};" if plain else f"return {returns}({call});"

    def function(self, statement):
        match = re.match(r"(.*?)\b(\w+)\((.*)\)([^()]*)$", statement, flags=re.S)
        returns, name, parameters, rest = (part.strip() for part in match.groups())
        rest, _, given = (part.strip() for part in rest.partition("="))
        c_name = self.c_function(name, given)
        parsed = [re.match(r"(.*?[ &*])(\w+)(?:\s*=.*)?$", one, flags=re.S).groups() for one in split(parameters)]
        parsed = [(type.strip(), one) for type, one in parsed]
        _, c_parameters = self.headers.functions[c_name]
        if c_parameters and c_parameters[0][0].endswith("_args *"):
            body = self.filled(name, c_name, c_parameters[0][0], parsed, rest, returns)
        else:
            body = self.called(name, c_name, c_parameters, parsed, returns)
        head = f"{'' if returns.startswith('friend') else 'inline '}{returns}{'' if returns[-1] in '&*' else ' '}"
        return f"{head}{name}({parameters}) {{\n" + "".join(f"    {line}\n" for line in body) + "}\n"

    def called(self, name, c_name, c_parameters, parsed, returns):
        """The body that calls a function without args."""
        values = []
        for type, one in parsed:
            if type.endswith("tensor_list &"):
                values += [f"{one}.data()", f"{one}.size()"]
                continue
            c_type = c_parameters[len(values)][0] if len(values) < len(c_parameters) else ""
            simple, _ = converted("x", c_type, type, one)
            values.append(simple.partition(" = ")[2])
        if len(values) != len(c_parameters):
            raise Mistake(f"{name}(): {c_name}() takes {len(c_parameters)} arguments, not {len(values)}")
        return [self.returned(returns, c_name, ", ".join(values), parsed and parsed[0][1])]

    def filled(self, name, c_name, args, parsed, rest, returns):
        """The body that fills an args struct."""
        args = re.search(r"tt_\w+", args).group()
        fields = dict(self.headers.structs[args])
        left, renamed = set(), {}
        for item in split(rest):
            if item.startswith("-"):
                left.add(item[1:])
            else:
                key, _, value = item.partition(":")
                renamed[key.strip()] = value.split()
        assignments, calls, given = [], [], set()

        def give(field, type, value):
            simple, call = converted(field, fields[field], type, value)
            given.add(field)
            given.add(field + "_hw")
            (assignments.append(simple) if simple else calls.append(call))

        for type, one in parsed:
            struct = re.fullmatch(r"const (\w+_options) &", type)
            for member, member_kind in self.options.get(struct.group(1), {}).items() if struct else ():
                if member in left:
                    continue
                if member not in fields and "no_" + member in fields:
                    given.add("no_" + member)
                    assignments.append(f"a.no_{member} = !{one}.{member}")
                elif member in fields:
                    give(member, member_kind, f"{one}.{member}")
                else:
                    raise Mistake(f"{name}(): {args} has no field {member}")
            if struct:
                continue
            to = renamed.get(one, [one])
            if to[0] not in fields:
                raise Mistake(f"{name}(): {args} has no field {to[0]}")
            if len(to) == 2:
                given.update(to)
                assignments += [f"a.{to[0]} = {one}.data()", f"a.{to[1]} = std::int64_t({one}.size())"]
            else:
                give(to[0], type, one)
        begin, end = [], self.returned(returns, c_name, "a", parsed and parsed[0][1])
        if "out" in fields and "out" not in given:
            begin = [f"{fields['out'][:-1]}made = nullptr;"]
            assignments.insert(0, "a.out = &made")
            given.add("out")
            end = f"check(detail::call({c_name}, a)); return {returns}(made);"
        lacking = [field for field in fields if field not in given and field not in left]
        if lacking:
            raise Mistake(f"{name}(): nothing gives a value to {', '.join(lacking)} of {args}")
        init = re.sub("^tt_(.*)_args$", r"TT_\1_ARGS_INIT", args).replace(args[3:-5], args[3:-5].upper())
        return [*begin, f"{args} a = {init};", *packed(assignments), *calls, end]

    def rest(self):
        """Functions of the header that need no words: tensors and numbers as they stand in C."""
        named, made = set(re.findall(r"\btt_\w+", without_comments(self.text))), []
        for name, given in re.findall(r"^@ [^;]*?\b(\w+)\([^;]*?(= tt_\w+)?;", self.text, flags=re.M):
            if not given:
                named.add(f"tt_{name}")
        for c_name in self.headers.of_header[self.name]:
            returns, parameters = self.headers.functions[c_name]
            if c_name in named or returns != "tt_tensor *" or c_name.endswith("_with"):
                continue
            in_place, types = c_name.endswith("_"), []
            for number, (type, one) in enumerate(parameters):
                kind = "tensor &" if in_place and number == 0 else "const tensor &"
                types.append((kind if type == "tt_tensor *" else SCALARS[type] + " ") + one)
            made.append(self.function(f"{'tensor &' if in_place else 'tensor '}{c_name[3:]}({', '.join(types)})"))
        return "".join(made)

    def expanded(self, match):
        statement = " ".join(match.group(2).split())
        # The namespace that the line stands in: each opens at the left margin, and closes with its name.
        before = self.text[:match.start()]
        opened = [n for n in re.findall(r"^namespace (\w+) \{", before, flags=re.M) if n not in ("tutti", "detail")
                  and f"}} // namespace {n}\n" not in before]
        self.namespace = opened[-1] + "_" if opened else ""
        if match.group(1) == "rest":
            return self.rest()
        return self.function(statement)

    def made(self):
        text = re.sub(r"^@(rest|)(?=[ ;])(" + STATEMENT + r");\n", self.expanded, self.text, flags=re.M | re.S)
        head, _, body = text.partition("\n")
        note = f"/* Made by tools/wrappers.py of tutti/{self.name}.h and tools/wrappers/{self.name}.hpp.in. */\n"
        return formatted(head + "\n" + note + body, INCLUDE / "cpp" / f"{self.name}.hpp")


def formatted(text, path):
    return subprocess.run(["clang-format", f"--assume-filename={path}"], input=text, text=True, check=True,
                          capture_output=True).stdout


def all_made():
    """Each header's path and the text it should have."""
    headers, options = Headers(), {}
    for path in sorted((INCLUDE / "cpp").glob("*.hpp")):
        options.update(options_members(path.read_text()))
    name = ""
    try:
        parts = [Part(headers, name := path.name.partition(".")[0], options) for path in sorted(TEMPLATES.glob("*.in"))]
        for part in parts:
            name = part.name
            yield INCLUDE / "cpp" / f"{name}.hpp", part.made()
    except Mistake as mistake:
        raise Mistake(f"tools/wrappers/{name}.hpp.in: {mistake}") from None


def findings():
    """For lint: what is not as it would be made."""
    try:
        for path, text in all_made():
            if path.read_text() != text:
                yield str(path.relative_to(ROOT)), 0, "is not what tools/wrappers.py makes; run it"
    except Mistake as mistake:
        yield "tools/wrappers.py", 0, str(mistake)


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
