"""Slips that must not compile, one a line of a table *.slips in this folder:

    [warn] SLIP => MENDED :: KIND               (a line that is indented goes on with the one before)

SLIP and MENDED are expressions, or statements if they end in ";", that see the objects of OBJECTS. Every compiler must
refuse SLIP with no warnings turned on, on the line where it stands, with a message of this KIND (see MESSAGES). Behind
"warn", which is for what the language allows, it must do so under -Wall -Wextra -Werror. MENDED must compile without
warnings, pedantically. A table whose name begins with "cpp" is for C++17, the others are for C11 and gnu11.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
HERE = pathlib.Path(__file__).parent
PUBLIC = sorted((SOURCE / "include" / "tutti").glob("*.h"))
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
COMPILERS = {
    "c": [["gcc", "-std=c11"], ["gcc", "-std=gnu11"], ["clang", "-std=c11"], ["clang", "-std=gnu11"]],
    "cpp": [["g++", "-std=c++17"], ["clang++", "-std=c++17"]],
}
HEADERS = {"c": "#include <tutti/tutti.h>\n", "cpp": "#include <tutti/tutti.hpp>\n"}

# What the statements see. Nothing is linked, so nothing is defined.
OBJECTS = """
extern tt_group *world, *made;
extern tt_store *store;
extern tt_store_server *server;
extern tt_reducer *reducer;
extern tt_reducer_param params[2];
extern tt_work *work;
extern tt_p2p_op ops[2];
extern tt_tensor *tensor, **tensors;
extern const tt_tensor *const_tensor;
extern float *x, *y;
extern const float *constant;
extern void *memory, *bufs[2];
extern int ranks[2];
extern int64_t counts[2], n;
extern tt_module *module;
extern tt_optimizer *optimizer;
extern const tt_named_tensors *list;
extern double number;
"""
CPP_OBJECTS = """
extern tutti::group group;
extern tutti::tensor own;
extern tutti::module net;
extern tutti::dataset set;
extern std::vector<float> values;
extern const std::vector<float> const_values;
"""

MESSAGES = {
    # A required argument is left out: of a macro, or the last one, which its "..." begins with.
    "missing": r"requires (at least )?\d+ arguments?, but only \d+|too few arguments|expected expression",
    "named": r"tt_an_option_needs_its_name",
    "device": r"has no member named .device|field designator .device",
    "stream": r"has no member named .stream|field designator .stream",
    "tensor": r"tt_a_tensor_is_no_buffer_see_parallel_h",
    "const": r"discards? '?‘?const|discards qualifiers",
    "unused": r"ignoring return value|unused result",
    "pointer": r"incompatible (pointer|integer to pointer)|incompatible types|without a cast",
    "deleted": r"use of deleted|call to deleted|deleted (function|constructor)|implicitly[- ]deleted",
    "match": r"no matching (?:function|constructor)|too few arguments|could not convert|cannot bind"
    r"|no known conversion",
    "convert": r"cannot convert|no viable conversion",
    "undeclared": r"undeclared|not declared|was not declared",
}


class Slip:
    def __init__(self, table, number, text):
        match = re.fullmatch(r"(warn )?(.+?) => (.+?) :: (\w+)", text)
        if not match or match.group(4) not in MESSAGES:
            raise ValueError(f"{table}:{number}: expected [warn] SLIP => MENDED :: KIND, got {text}")
        self.where = f"{table.name}:{number}"
        self.warned, self.slip, self.mended, self.kind = bool(match.group(1)), *match.groups()[1:]


def read_table(table):
    """Lines that begin with "#" are comments."""
    slips = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if line.startswith(" "):
            slips[-1] = (slips[-1][0], f"{slips[-1][1]} {line.strip()}")
        elif line and not line.startswith("#"):
            slips.append((number, line))
    return [Slip(table, *slip) for slip in slips]


def function(number, code):
    """`code` in a function of its own, on the function's third line."""
    statement = code if code.endswith(";") else f"(void)sizeof({code});"
    return f"void slip_{number}(void);\nvoid slip_{number}(void) {{\n    {statement}\n}}\n"


def program(language, codes):
    """The text, and the line on which the last statement stands."""
    text = HEADERS[language] + OBJECTS + (CPP_OBJECTS if language == "cpp" else "")
    for number, code in enumerate(codes):
        line = text.count("\n") + 3
        text += function(number, code)
    return text, line


def compile_text(compiler, flags, text, suffix):
    """Whether it compiles, and what the compiler said. Some warnings come late, so code is really made."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "slip" + suffix)
        source.write_text(text)
        command = [*compiler, *flags, f"-I{SOURCE}/include", "-S", "-o", "/dev/null", str(source)]
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return result.returncode == 0, result.stderr


def complaint(language, compiler, slip):
    """None if the compiler refuses the slip as it should; else what is wrong."""
    suffix = ".c" if language == "c" else ".cc"
    text, line = program(language, [slip.slip])
    compiles, said = compile_text(compiler, STRICT[1:] if slip.warned else ["-w"], text, suffix)
    if compiles:
        return "it compiles"
    if not re.search(MESSAGES[slip.kind], said):
        return f"expected a message of kind {slip.kind}, /{MESSAGES[slip.kind]}/, got:\n{said}"
    lines = set(re.findall(rf"slip{suffix}:(\d+):\d", said)) - {"1"}  # where the headers are included
    return None if lines == {str(line)} else f"expected errors on line {line}, got some on {lines}:\n{said}"


class Slips(unittest.TestCase):
    def check_mended(self, language, compiler, slips):
        text, _ = program(language, [slip.mended for slip in slips])
        compiles, said = compile_text(compiler, STRICT, text, ".c" if language == "c" else ".cc")
        self.assertTrue(compiles, said)

    def check_table(self, table):
        """How many slips were tried."""
        language = "cpp" if table.name.startswith("cpp") else "c"
        compilers = [compiler for compiler in COMPILERS[language] if shutil.which(compiler[0])]
        slips = read_table(table)
        for compiler in compilers:
            with self.subTest(table=table.name, compiler=compiler):
                self.check_mended(language, compiler, slips)
        cases = [(compiler, slip) for compiler in compilers for slip in slips]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda case: complaint(language, *case), cases))
        for (compiler, slip), what in zip(cases, found):
            with self.subTest(compiler=compiler):
                self.assertIsNone(what, f"{slip.where}: {slip.slip}: {what}")
        return len(cases)

    def test_tables(self):
        tried = sum(self.check_table(table) for table in sorted(HERE.glob("*.slips")))
        print(f"{tried} slips refused")
        self.assertGreater(tried, 0)

    def test_every_status_must_be_used(self):
        for header in PUBLIC:
            self.assertEqual(re.findall(r"TT_API tt_status (?!tt_last_status)\w+", header.read_text()), [], header.name)

    def test_every_args_struct_has_an_initialiser(self):
        for header in PUBLIC:
            text = header.read_text()
            for name in re.findall(r"^} (tt_\w+_args);", text, flags=re.M):
                self.assertIn(f"#define {name.upper()}_INIT TT_ARGS_INIT\n", text)


if __name__ == "__main__":
    if not shutil.which("gcc") and not shutil.which("clang"):
        print("skipped: there is neither gcc nor clang")
        sys.exit(77)
    unittest.main()
