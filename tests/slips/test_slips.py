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
extern const tt_store_class custom;
extern tt_store_server *server;
extern tt_reducer *reducer;
extern tt_reducer_param params[2];
extern tt_work *work;
extern int timer;
extern tt_process_context *context;
extern tt_elastic *elastic;
extern tt_join *join;
extern tt_model_averager *averager;
extern tt_elastic_part_class part;
extern int run(int rank, void *arg);
extern void no_code(int rank, void *arg);
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
extern tt_pipeline *pipeline;
extern tt_safetensors *file;
extern unsigned char bytes[8];
extern const tt_named_tensors *list;
extern double number;
extern tt_rpc *self;
extern tt_rref *kept;
extern tt_future *later;
extern tt_rpc_value value;
extern tt_dist_optimizer *dist;
extern tt_remote_module *remote;
"""
CPP_OBJECTS = """
extern tutti::group group;
extern tutti::tensor own;
extern tutti::module net;
extern tutti::dataset set;
extern std::vector<float> values;
extern const std::vector<float> const_values;
extern tutti::sampler_order order;
extern tutti::rpc me;
extern tutti::rref held;
extern tutti::future promised;
extern double half(double x);
"""

MESSAGES = {
    # A required argument is left out: of a macro, or the last one, which its "..." begins with.
    "missing": r"requires (at least )?\d+ arguments?, but only \d+|too few arguments|expected expression",
    "named": r"tt_an_option_needs_its_name",
    "value": r"tt_a_value_needs_tt_rpc_int_or_the_like",
    "device": r"has no member named .device|field designator .device",
    "stream": r"has no member named .stream|field designator .stream",
    "tensor": r"tt_a_tensor_is_no_buffer_see_parallel_h",
    "const": r"discards? '?‘?const|discards qualifiers",
    "unused": r"ignoring return value|unused result",
    "pointer": r"incompatible (function pointer|pointer|integer to pointer)|incompatible types?\b|without a cast",
    "place": r"_Generic.* selector .*not compatible|not compatible with any generic association",
    "deleted": r"use of deleted|call to deleted|deleted (function|constructor)|implicitly[- ]deleted",
    "match": r"no matching (?:member )?(?:function|constructor)|too few arguments|could not convert|cannot bind"
    r"|no known conversion|invalid initialization of reference|cannot convert '[^']*<(?:lambda|brace)",
    "convert": r"cannot convert|no viable conversion|conversion from .* to non-scalar",
    "assertion": r"static assertion|static_assert",
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
    """The text, and the lines on which the statements stand."""
    text = HEADERS[language] + OBJECTS + (CPP_OBJECTS if language == "cpp" else "")
    lines = []
    for number, code in enumerate(codes):
        lines.append(text.count("\n") + 3)
        text += function(number, code)
    return text, lines


def compile_text(language, compiler, flags, text):
    """Whether it compiles, and what the compiler said. Some warnings come late, so code is really made."""
    suffix = ".c" if language == "c" else ".cc"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "slip" + suffix)
        source.write_text(text)
        command = [*compiler, *flags, f"-I{SOURCE}/include", "-S", "-o", "/dev/null", source.name]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return result.returncode == 0, result.stderr


def complaint(language, compiler, slip):
    """None if the compiler refuses the slip as it should; else what is wrong."""
    text, (line,) = program(language, [slip.slip])
    compiles, said = compile_text(language, compiler, STRICT[1:] if slip.warned else ["-w"], text)
    if compiles:
        return "it compiles"
    if not re.search(MESSAGES[slip.kind], said):
        return f"expected a message of kind {slip.kind}, /{MESSAGES[slip.kind]}/, got:\n{said}"
    lines = named_lines(said)
    return None if lines == {line} else f"expected errors on line {line}, got some on {lines}:\n{said}"


def named_lines(said):
    """The lines of the program that are named, but for that where the headers are included."""
    return set(map(int, re.findall(r"slip\.cc?:(\d+):\d", said))) - {1}


def diagnostics(said):
    """Each error or warning with what leads to it and the notes that follow, by the line that it names. What names
    several is left out."""
    found, block, has_one = {}, [], False
    for line in [*said.splitlines(), "slip.c: In the end"]:
        one = re.search(r": (?:fatal )?(?:error|warning): ", line)
        leads = re.match(r"In file included from |slip\.cc?: |[^:]+: In |.*required (from|by)", line)
        if has_one and (one or leads):
            lines = named_lines("\n".join(block))
            if len(lines) == 1:
                found.setdefault(lines.pop(), []).extend(block)
            block, has_one = [], False
        block.append(line)
        has_one = has_one or bool(one)
    return {line: "\n".join(block) for line, block in found.items()}


def refused_together(language, compiler, slips):
    """Those slips of one program with all of them that the compiler refuses as it should. An error can hide others, so
    nothing follows for the rest."""
    flags = [flag for flag in STRICT[1:] if flag != "-Werror"] if slips[0].warned else ["-w"]
    flags.append("-fmax-errors=0" if compiler[0].startswith("g") else "-ferror-limit=0")
    text, lines = program(language, [slip.slip for slip in slips])
    said = diagnostics(compile_text(language, compiler, flags, text)[1])
    return {slip for slip, line in zip(slips, lines) if re.search(MESSAGES[slip.kind], said.get(line, ""))}


def complaints(language, compiler, slips):
    """(slip, what is wrong) for those that are not refused as they should. What the compiler turns down early is tried
    apart from what it warns of late."""
    rest = set(slips)
    for warned, late in ((False, False), (True, False), (True, True)):
        together = [slip for slip in slips if slip.warned == warned and (slip.kind == "unused") == late]
        rest -= refused_together(language, compiler, together) if together else set()
    alone = [(slip, complaint(language, compiler, slip)) for slip in slips if slip in rest]
    return [(slip, what) for slip, what in alone if what]


class Slips(unittest.TestCase):
    def test_tables(self):
        tables = {language: [] for language in COMPILERS}
        for table in sorted(HERE.glob("*.slips")):
            tables["cpp" if table.name.startswith("cpp") else "c"] += read_table(table)
        cases = [(language, compiler, slips) for language, slips in tables.items() for compiler in COMPILERS[language]
                 if shutil.which(compiler[0]) and slips]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            mended = list(pool.map(lambda case: self.mended(*case), cases))
            found = list(pool.map(lambda case: complaints(*case), cases))
        for (_, compiler, _), (compiles, said), wrong in zip(cases, mended, found):
            with self.subTest(compiler=compiler):
                self.assertTrue(compiles, said)
            for slip, what in wrong:
                with self.subTest(compiler=compiler, slip=slip.where):
                    self.fail(f"{slip.where}: {slip.slip}: {what}")
        tried = sum(len(slips) for _, _, slips in cases)
        print(f"{tried} slips refused")
        self.assertGreater(tried, 0)

    @staticmethod
    def mended(language, compiler, slips):
        return compile_text(language, compiler, STRICT, program(language, [slip.mended for slip in slips])[0])

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
