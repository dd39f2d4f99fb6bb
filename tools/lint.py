#!/usr/bin/env python3
"""Checks of this code base that no general tool makes. Prints "file:line: text" for each finding; exit code 1 if there
is one.

  layers    a folder includes only what lies below it (ARCHITECTURE.md has the picture), the folders inside comm
            likewise
  circles   no two files of src/ use each other, directly or by way of others, in the objects of the build
            nor do the files of one folder by what they include, whose types and inline functions count; a source and
            its header are one file there
  statics   what no other file uses is static; a use in tests counts, so the build is one with tests
  callers   what a header of src/ declares is called by more than tests
  symbols   the shared libraries export the public functions of their layers, once; libtutti-comm also what libtutti
            uses of it
  quiet     the library never prints and never ends the process
  documents every public function stands under a comment
  contract  a status must be used (TT_NODISCARD); arguments have TT_X_ARGS_INIT and tt_x_with; counts are int64_t
  sizes     no function above 80 lines, no file above 600
  folders   no folder of src or tests with more than 45 sources and headers: it wants rooms
  states    a struct of the launcher's state has at most three booleans: a fourth wants an enum
  operators an operator, that is src/autograd without its argument checks, neither tests an element type nor looks at
            elements: kernels do
  names     no two files of src/ have one name, whatever their folders (a header and a source of one name share a
            folder), and no two files a static function of one name, so that a backtrace tells them apart
  types     no two types of src/ and include/ that begin with tt_ have one name, so that a name means one thing
  mentions  the files that comments and ARCHITECTURE.md name are there
  words     comments of src/ and include/ have none of the phrases that readers stumbled over
  columns   no line above 120 columns; tools/wrap.py, which ./dev fmt runs, wraps comments and the text of pages, where
            only rows of tables and single words, such as links, may be longer
  sites     a call of ours to other ranks says in words what it is part of: its line would mean nothing to a program
  manifest  each operator has its line in operators.def, cases beside PyTorch and of gradients, and each kernel is in
            the tables of the plain loops and of CUDA (tools/operators.py)
  wrappers  the C++ headers are as tools/wrappers.py makes them of the C headers
  flags     pages about the flags of tutti run are as tools/run_flags.py makes them of run_flags.def
  locale    numbers are written by base/text/format.h and read by base/text/parse.h, JSON by base/text/json.h: what a
            program's locale changes is used there alone
  settings  the manual names every environment variable TT_* that is read; docs/environment.md has a row for each of
            them, and for no other
  links     every relative link of a page leads to a file that is there, and to a heading of that page
  paths     every path of a source, test or tool that a page names is there
  index     docs/README.md links to every page below docs/, and README.md has at most 120 lines
  calls     what a page calls tt_... begins a name that a public header, or CMake, has
  secure    variables are read by secure_getenv(), but for those that are known to name neither a file nor a program

usage: tools/lint.py [BUILD_FOLDER]     (default: build; its libraries and objects are read)
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import operators  # noqa: E402
import run_flags  # noqa: E402
import wrappers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 80
MAX_FILE_LINES = 600
MAX_FOLDER_FILES = 45
MAX_COLUMNS = 120
# The headers whose structs are the launcher's state, and how many booleans one may have.
STATES = r"src/launch/(machine/machine_state|launcher_parts)\.h"
MAX_BOOLEANS = 3
MAX_FRONT_LINES = 120
# What is written by hand in the folders whose lines are measured.
COLUMN_FOLDERS = ("src", "include", "examples", "tests", "plugins", "bindings", "bench", "tools", "cmake")
COLUMN_SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".py", ".sh", ".cmake", ".txt"}
# Where callers of functions of src/ are, beside tests.
CALLERS_FOLDERS = ("src", "plugins", "bindings", "bench", "include")
CALLERS_SUFFIXES = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".def")
PAGES = ("*.md", "docs/*.md")
LINKING_PAGES = ("*.md", "docs/**/*.md", "bindings/*/*.md")
INDEX = "docs/README.md"
OF_ALL_TIMES = ("CHANGELOG.md", "ARCHITECTURE.md")  # these also name what is gone, or is no public function
INDEXED = ("docs/**/*.md", "docs/man/*.1")

# Phrases that no reader takes in at once, and that return.
STUMBLED_OVER = r"\b(likewise|but\s+for|as\s+it\s+lies|to\s+who|of\s+who)\b"
# By which tests see what no program can: memory that is given back, keys that are renewed, a schedule that is valid.
FOR_TESTS = set("tt__arena_end tt__pool_trim tt__schedule_check tt__seal_rekey_every".split())
# Files of others that comments name.
OTHERS_FILES = set("a.c cmocka.h cublasLt.h jpeglib.h linux_syscall_hooks.h llm.c math.h pidfd.h train.c".split())

# What makes a descriptor, and who may do so without tt__fd(): it itself; who makes standard streams of them.
MAKES_DESCRIPTOR = (r"(?<![\w>.*])(accept4?|dup|epoll_create1|eventfd|memfd_create|open(?:at)?|signalfd|socket|"
                    r"syscall(?=\(SYS_pidfd_open))\(")
MAY_MAKE_STREAMS = ("src/base/files/fd.c", "src/cli/run/run.c", "src/launch/local/worker.c")

# Variables that getenv() may read: in a set-user-id program their values are the caller's.
NAME_NO_PATH = set(
    "CLICOLOR_FORCE COLUMNS CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES LOCAL_RANK LOCAL_WORLD_SIZE NO_COLOR MASTER_ADDR "
    "MASTER_PORT OMPI_COMM_WORLD_RANK OMP_NUM_THREADS OMP_WAIT_POLICY PMI_RANK RANK TERM "
    "TORCHELASTIC_ENABLE_FILE_TIMER TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE TORCHELASTIC_RESTART_COUNT "
    "TORCHELASTIC_SIGNALS_TO_HANDLE TORCHELASTIC_USE_AGENT_STORE TORCH_ELASTIC_SHUTDOWN_TIMEOUT TT_ALGORITHMS "
    "TT_BACKEND_CHECK TT_CPU_LEVEL TT_CRASH_STACKS TT_DEBUG TT_FRESH_STORE TT_HOST_ID TT_JOB_SOCKET "
    "TT_LOG TT_ROUND TT_SECRET TT_SECRET_FD TT_SOCKET_IFNAME TT_SYMMETRIC_HEAP TT_TLS TT_WAIT_NOTICE TT_WIRE "
    "TUTTI_BENCH_RANK WORLD_SIZE".split())
# Files that read variables of such names from a table.
READ_BY_TABLE = {"src/base/process/threads.h", "src/base/setting.c", "src/comm/backend/plugin_load.c",
                 "src/comm/rendezvous/environment.c", "src/net/secure/secret.c"}

# What each layer may include besides itself, without what those include in turn.
BELOW = {
    "base": [],
    "net": ["base"],
    "store": ["net"],
    "comm": ["store"],
    "spawn": ["store"],
    "reducer": ["comm"],
    "rpc": ["comm"],
    "elastic": ["comm"],
    "tensor": ["base"],
    "autograd": ["tensor"],
    "nn": ["autograd"],
    "optim": ["nn"],
    "zip": ["base"],
    "data": ["tensor", "zip"],
    "checkpoint": ["nn", "optim", "data", "zip"],
    "models": ["checkpoint"],
    "parallel": ["reducer", "elastic", "rpc", "nn", "optim", "data", "checkpoint"],
    "metrics": ["base"],
    "launch": ["store"],
    "trainer": ["parallel", "metrics"],
    "cli": ["launch", "trainer", "models"],
}
# What each folder of src/comm may include besides itself and the headers of VOCABULARY; the top, src/comm itself, may
# include all.
INSIDE_COMM = {
    "record": [],
    "reduce": [],
    "message/transport": ["record"],
    "message": ["record", "message/transport", "message/joining"],
    "message/joining": ["record", "message", "message/transport"],
    "rendezvous": [],
    "shared": ["record", "rendezvous", "message/transport"],
    "watch": ["record", "shared"],
    "collective/shared": ["reduce", "shared"],
    "collective/message": ["reduce", "message"],
    "collective/hierarchical": ["reduce", "collective/message"],
    "collective": ["reduce", "collective/shared", "collective/message", "collective/hierarchical"],
    "native": ["record", "shared", "watch", "rendezvous", "collective", "collective/shared"],
    "backend": ["reduce", "rendezvous", "watch", "native"],
    "call": ["reduce", "collective"],
}
# What groups, works and operations are: the structs and tables of the whole of comm.
VOCABULARY = {"group", "native_group", "work", "callback", "in_callback", "world", "op", "rankset"}
# Who may print, and who may end its process: the keeper of launch is a process of its own, and so are the children of
# spawn, which flushes the program's streams.
MAY_PRINT = {"cli", "spawn"}
MAY_END = {"cli", "launch", "spawn"}
# Files of autograd that may: record.c has the argument checks of operators; backward.c, open_pass.c and leaf.c check
# gradients that come from operators and programs, and leaf.c moves a gradient's bytes to other memory; autocast.c
# chooses types.
MAY_SEE_ELEMENTS = {"autocast", "record", "backward", "leaf", "open_pass"}
# libtutti-comm is these; libtutti is the others but the command's.
COMM_LAYERS = {"base", "net", "store", "spawn", "comm", "elastic", "reducer", "rpc"}
# Under which the one exports what only the other may use (cmake/library.map.in).
PRIVATE_NODE = "TUTTI_PRIVATE_"
# Public headers that are not named after their layer.
LAYER_OF_HEADER = {"amp": "optim", "backend": "comm", "datasets": "data", "device": "tensor",
                   "functional": "autograd", "nn_functional": "autograd", "graph": "autograd", "init": "nn",
                   "layers": "nn", "job": "comm", "loader": "data", "samplers": "data", "transforms": "data"}
LAYER_OF_HEADER |= dict.fromkeys(("comm_hooks", "data_parallel", "elastic_training", "fully_shard", "join", "local_sgd",
                                  "mesh", "model_parallel", "pipeline", "rpc_training", "sync_batch_norm",
                                  "tensor_parallel", "zero"), "parallel")


def allowed(layer):
    """The layer and everything below it."""
    found, todo = set(), [layer]
    while todo:
        current = todo.pop()
        if current not in found:
            found.add(current)
            todo += BELOW[current]
    return found


def strip_comments(text):
    """Comments and the insides of strings become spaces; line numbers stay."""
    def blank(match):
        piece = match.group(0)
        if piece[0] in "\"'":
            return piece[0] + " " * (len(piece) - 2) + piece[-1]
        return re.sub(r"[^\n]", " ", piece)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def check_layers(name, text, layer):
    """`layer` is the folder of src/ or the name of the public header that `text` comes from."""
    below = allowed(layer)
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(?:"([a-z0-9_]+)/|<tutti/([a-z0-9_]+)\.h>)', line)
        if not match:
            if re.match(r'\s*#\s*include\s*"', line):
                yield name, number, "write included files of ours as \"layer/file.h\""
            continue
        other = match.group(1) or LAYER_OF_HEADER.get(match.group(2), match.group(2))
        if other == "tutti" and layer == "cli":
            continue
        if other not in below:
            yield name, number, f"{layer} must not include {other}"


def check_inside_comm(name, text, folder):
    """`folder` is below src/comm."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"comm/(?:(.+)/)?([^/]+)\.h"', line)
        if not match or match.group(1) == folder or (not match.group(1) and match.group(2) in VOCABULARY):
            continue
        if match.group(1) not in INSIDE_COMM[folder]:
            yield name, number, f"comm/{folder} must not include comm/{match.group(1) or match.group(2) + '.h'}"


def find_circles(uses):
    """The groups of files that use each other, directly or by way of others. `uses`: file -> files."""
    number, low, stack, found = {}, {}, [], []

    def visit(file):
        number[file] = low[file] = len(number)
        stack.append(file)
        for other in sorted(uses.get(file, ())):
            if other not in number:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == number[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for file in sorted(uses):
        if file not in number:
            visit(file)
    return found


def uses_from_symbols(symbols):
    """file -> files whose definitions it refers to. `symbols`: triples of a file, a letter as nm prints it, a
    symbol."""
    owner = {symbol: file for file, letter, symbol in symbols if letter in "TDBRVC"}
    uses = {}
    for file, letter, symbol in symbols:
        of = uses.setdefault(file, set())
        if letter == "U" and owner.get(symbol, file) != file:
            of.add(owner[symbol])
    return uses


def check_circles(symbols):
    for files in find_circles(uses_from_symbols(symbols)):
        others = ", ".join(files[1:])
        yield files[0], 0, f"a circle with {others}: what calls each other is one file, or a third is missing"


def uses_from_includes(texts):
    """Path without its suffix -> those of the same folder that the source or its header includes."""
    uses = {}
    for name, text in texts.items():
        path = pathlib.PurePosixPath(name)
        of = uses.setdefault(str(path.with_suffix("")), set())
        for included in re.findall(r'^\s*#\s*include\s*"([^"]+)\.h"', text, flags=re.M):
            other = pathlib.PurePosixPath("src", included)
            if f"{other}.h" in texts and other.parent == path.parent and other != path.with_suffix(""):
                of.add(str(other))
    return uses


def check_include_circles(texts):
    """`texts`: path -> text of the files of src."""
    for files in find_circles(uses_from_includes(texts)):
        name = next(files[0] + suffix for suffix in (".h", ".c") if files[0] + suffix in texts)
        yield name, 0, (f"includes and is included by {', '.join(files[1:])}: move what they share, a type or a "
                        "function, below both, or make them one file")


def check_statics(symbols):
    """An internal function or variable that only its own file uses; use by tests, plug-ins and benchmarks counts."""
    users = {}
    for file, letter, symbol in symbols:
        if letter == "U":
            users.setdefault(symbol, set()).add(file)
    found = {(file, symbol) for file, letter, symbol in symbols
             if letter in "TDBRC" and symbol.startswith("tt__") and not users.get(symbol, set()) - {file}}
    for file, symbol in sorted(found):
        if file.startswith("src/"):
            yield file, 0, f"{symbol} is used by no other file: make it static"


PRINTS = r"\b(v?[fd]?printf|tt__print|puts|fputs|putchar|fputc|fwrite|write|perror|psignal)\s*\("
ENDS = r"(?<![.>])\b(exit|_exit|_Exit|quick_exit|abort|assert|raise|__builtin_trap)\s*\("
# tt_report() prints, and the log where TT_LOG asks for it.
PRINTERS = r"(void tt_report|static void write_stderr)\("
# What a child runs that the library has forked.
CHILDREN = r"static void answer_count\("


def check_quiet(name, text, layer):
    """A library neither prints nor ends its process, but for PRINTERS and CHILDREN."""
    inside_printer = inside_child = False
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        if re.match(PRINTERS, line):
            inside_printer = True
        if re.match(CHILDREN, line):
            inside_child = True
        if line.startswith("}"):
            inside_printer = inside_child = False
        if layer not in MAY_END and not inside_child and re.search(ENDS, line):
            yield name, number, "a library does not end the process; return an error"
        match = re.search(PRINTS, line)
        # fprintf to a file of our own is writing, not printing.
        if match and layer not in MAY_PRINT and not inside_printer and (
                match.group(1) in ("printf", "vprintf", "puts", "putchar", "perror", "psignal")
                or re.search(r"\bstd(err|out)\b|\bSTD(ERR|OUT)_FILENO\b|\b(d\w*|write)\s*\(\s*[12]\s*,", line)):
            yield name, number, "a library does not print; log or return an error"


def check_documents(name, text):
    """Public functions: the paragraph that a declaration stands in starts with a comment."""
    documented = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            documented = False
        if "*/" in line:
            documented = True
        if re.match(r"TT_API\b", line) and not documented:
            yield name, number, "a public function without a comment above it"


def check_contract(name, text):
    """Conventions of public headers. Bytes are size_t, and are called size or bytes; one struct may serve two calls."""
    bare = strip_comments(text)
    functions = set(re.findall(r"\b(tt_\w+)\s*\(", bare))
    for match in re.finditer(r"^TT_API tt_status (?!tt_last_status\b)(\w+)\(", bare, flags=re.M):
        yield name, bare.count("\n", 0, match.start()) + 1, f"{match.group(1)} returns a status without TT_NODISCARD"
    for match in re.finditer(r"^\} (tt_\w+)_args;", bare, flags=re.M):
        number = bare.count("\n", 0, match.start()) + 1
        if not re.search(rf"^ *# *define {match.group(1).upper()}_ARGS_INIT TT_ARGS_INIT$", bare, flags=re.M):
            yield name, number, f"{match.group(1)}_args has no {match.group(1).upper()}_ARGS_INIT"
        if match.group(1) + "_with" not in functions:
            yield name, number, f"{match.group(1)}_args has no {match.group(1)}_with()"
    for match in re.finditer(r"\b(?:size_t|int|unsigned)\s+(n|\w*count|numel|length|index|\w*epochs?|steps?)\b", bare):
        number = bare.count("\n", 0, match.start()) + 1
        yield name, number, f"{match.group(1)}: a count is int64_t, bytes are `bytes` or `size`"


def check_sizes(name, text):
    """Relies on the formatting: a function's braces stand in the first column, the opening one at a line's end."""
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield name, len(lines), f"the file has {len(lines)} lines, above {MAX_FILE_LINES}"
    start = None
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_].*\)\s*\{$", line) or (re.match(r"\s+.*\)\s*\{$", line) and start is None and
                                                     number > 1 and re.match(r"[A-Za-z_].*[,(]$", lines[number - 2])):
            start = number
        elif line.startswith("}") and start is not None:
            if number - start + 1 > MAX_FUNCTION_LINES:
                yield name, start, f"the function has {number - start + 1} lines, above {MAX_FUNCTION_LINES}"
            start = None


def check_operators(name, text):
    """Operators, in whatever file of src/autograd: element types are for argument checks and kernels (tensor/) to
    know."""
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        if re.search(r"\bTT_(F32|F64|F16|BF16|I8|I16|I32|I64|U8|BOOL)\b|dtype(_size)?(\([^()]*\))?\s*[!=]=|"
                     r"[!=]=\s*\S*dtype\b|switch\b.*dtype",
                     line):
            yield name, number, "an operator does not test element types; checks and kernels do"
        if re.search(r"\(\s*(const\s+)?(float|double|u?int\d+_t)\s*\*\s*\)|(->|\.)data\b|"
                     r"\btt_tensor_(data|f32|i64)\(",
                     line):
            yield name, number, "an operator does not look at elements; write a kernel (tensor/kernels/kernels.h)"


def check_folders(names):
    """`names`: paths of sources and headers."""
    counts = {}
    for name in names:
        folder = str(pathlib.PurePosixPath(name).parent)
        counts[folder] = counts.get(folder, 0) + 1
    for folder, count in sorted(counts.items()):
        if count > MAX_FOLDER_FILES:
            yield folder, 0, (f"the folder has {count} files, above {MAX_FOLDER_FILES}: make rooms of what belongs "
                              "together")


def check_states(texts):
    """`texts`: path -> text."""
    for name, text in texts.items():
        bare = strip_comments(text)
        for found in re.finditer(r"\bstruct (\w+) \{([^{}]*)\}", bare) if re.fullmatch(STATES, name) else ():
            booleans = re.findall(r"\w+(?=[,;])", " ".join(re.findall(r"\bbool ([^;]*;)", found[2])))
            if len(booleans) > MAX_BOOLEANS:
                yield name, bare.count("\n", 0, found.start()) + 1, (
                    f"{found[1]} has {len(booleans)} booleans, above {MAX_BOOLEANS} ({', '.join(booleans)}): those "
                    "that exclude each other are one enum")


def check_words(texts):
    """`texts`: path -> text."""
    for name, text in texts.items():
        for comment in re.finditer(r"/\*.*?\*/", text, flags=re.S):
            for found in re.finditer(STUMBLED_OVER, re.sub(r"\n \*", "\n  ", comment[0])):
                line = text.count("\n", 0, comment.start() + found.start()) + 1
                yield name, line, f'"{" ".join(found[0].split())}": say it plainly'


def check_callers(texts):
    """`texts`: path -> text of all that may call functions of src/, without tests."""
    bare = {name: strip_comments(text) for name, text in texts.items()}
    prototype = r"^(?!static|typedef|#|return)[A-Za-z][\w \t*]*?\b(tt__\w+)\([^;{}]*\)[^;{}]*"
    declared, seen, used = {}, {}, {}
    for name, text in bare.items():
        for word in re.findall(r"\btt__\w+", text):
            used[word] = used.get(word, 0) + 1
        for found in re.finditer(prototype + "[;{]", text, flags=re.M):
            seen[found[1]] = seen.get(found[1], 0) + 1
            if name.startswith("src/") and name.endswith(".h") and found[0].endswith(";"):
                declared.setdefault(found[1], (name, text.count("\n", 0, found.start()) + 1))
    for word, (name, line) in declared.items():
        if used[word] <= seen[word] and word not in FOR_TESTS:
            yield name, line, f"{word} is called by nobody, or by tests alone: test what programs call"


def check_mentions(texts, files):
    """`texts`: path -> text of sources and of ARCHITECTURE.md; `files`: names of all files, without their folders."""
    for name, text in texts.items():
        comments = re.finditer(r"/\*.*?\*/", text, flags=re.S) if name.endswith((".c", ".h", ".cu")) else [
            re.match(".*", text, flags=re.S)]
        for comment in comments:
            for found in re.finditer(r"(?<![\w<.])[\w/]*?(\w+\.(?:c|h|cu|hpp))\b(?!\.\d)", comment[0]):
                if found[1] not in files and found[1].islower() and found[1][0] != "_" and found[1] not in OTHERS_FILES:
                    line = text.count("\n", 0, comment.start() + found.start()) + 1
                    yield name, line, f"{found[0]} is named, and there is no such file"


def check_file_names(names):
    """`names`: paths. A header and a source of one name belong together, so they lie in one folder."""
    first = {}
    for name in sorted(names):
        path = pathlib.PurePath(name)
        other = first.setdefault(path.stem, path)
        if other.parent != path.parent:
            yield name, 0, f"has the name of {other}; say what sets it apart, e.g. {path.parent.name}_{path.name}"


def static_functions(text):
    """The names of the static functions that a file declares or defines, those that macros make left out."""
    bare = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", strip_comments(text), flags=re.S)
    return set(re.findall(r"^static\s[\w\s*]*?\b([a-z]\w*)\(", bare, flags=re.M))


def check_static_names(texts):
    """`texts`: path -> text."""
    first = {}
    for name in sorted(texts):
        for function in sorted(static_functions(texts[name])):
            if first.setdefault(function, name) != name:
                yield name, 0, f"{function}() is also the name of a function in {first[function]}; say of what it is"


def type_definitions(text):
    """Name -> line of each type that a file defines: by a body, or as another name of a type. "typedef struct x x;"
    defines none."""
    bare = strip_comments(text)
    found = {}
    for match in re.finditer(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", bare):
        found.setdefault(match[1], bare.count("\n", 0, match.start()) + 1)
    flat = bare
    while (shorter := re.sub(r"\{[^{}]*\}", lambda m: "\n" * m[0].count("\n"), flat)) != flat:
        flat = shorter
    for match in re.finditer(r"\btypedef\s+([^;]*);", flat):
        called = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", match[1]) or re.search(
            r"(\w+)(?:\s*\[[^\]]*\])*\s*$", match[1])
        if called and not re.fullmatch(rf"(?:struct|union|enum)\s+{called[1]}\s+{called[1]}\s*", match[1]):
            found.setdefault(called[1], flat.count("\n", 0, match.start()) + 1)
    return found


def check_type_names(texts):
    """`texts`: path -> text."""
    first = {}
    for name in sorted(texts):
        for called, number in type_definitions(texts[name]).items():
            if called.startswith("tt_") and first.setdefault(called, name) != name:
                yield name, number, f"{called} is also the name of a type in {first[called]}; say of what it is"


def check_columns(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            yield name, number, f"the line has {len(line)} columns, above {MAX_COLUMNS}"


def check_page_columns(name, text):
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        words = re.sub(r"^\s*(?:[-*+]|\d+[.)])\s", "", line).split()
        may_be_long = not in_block and (line.startswith("|") or len(words) == 1)
        if len(line) > MAX_COLUMNS and not may_be_long:
            yield name, number, f"the line has {len(line)} columns, above {MAX_COLUMNS}"


def without_code(text):
    """A page's text with its code blocks and its code in lines blanked."""
    lines, in_block = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fence or in_block else re.sub(r"`[^`]*`", "", line))
        in_block ^= fence
    return "\n".join(lines)


def anchors(text):
    """Of a page's headings, as GitHub makes them: a second one of one text ends in -1."""
    found, in_block = [], False
    for line in text.splitlines():
        in_block ^= line.lstrip().startswith("```")
        match = re.match(r"#+ +(.*)", line)
        if match and not in_block:
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            times = found.count(anchor)
            found.append(f"{anchor}-{times}" if times else anchor)
    return found


def links(text):
    """Pairs of a line's number and a relative link's target."""
    bare = without_code(text)
    for match in re.finditer(r"\]\(([^)\s]+)\)", bare):
        if not re.match(r"[a-z]+:", match[1]):
            yield bare.count("\n", 0, match.start()) + 1, match[1]


def check_links(name, text, root=ROOT):
    for number, target in links(text):
        path, _, anchor = target.partition("#")
        other = root / name if not path else (root / name).parent / path
        if not other.exists():
            yield name, number, f"a link to {target}, which is not there"
        elif anchor and other.suffix == ".md" and anchor not in anchors(other.read_text() if path else text):
            yield name, number, f"a link to {target}: {other.name} has no such heading"


def check_paths(name, text, root=ROOT):
    """Paths of sources that a page names, outside of blocks of code; a name may lack its suffix, or its end."""
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        in_block ^= line.lstrip().startswith("```")
        for path in re.findall(r"(?<![\w/.-])(?:src|tests|tools|bench)/[\w./-]*\w", "" if in_block else line):
            if not (root / path).exists() and not list(root.glob(path + "*")) and not re.search("[A-Z]", path):
                yield name, number, f"{path} is named, and is not there"


def check_index(name, text, pages, root=ROOT):
    """`pages`: the paths that it must link to."""
    linked = {((root / name).parent / target.partition("#")[0]).resolve() for _, target in links(text)}
    for page in pages:
        if page.resolve() not in linked and page != root / name:
            yield name, 0, f"does not link to {page.relative_to(root)}: every page has a line there"


def check_calls(name, text, known):
    for number, line in enumerate(text.splitlines(), 1):
        for call in re.findall(r"\btt_\w+", line):
            if not re.search(rf"\b{call}", known):
                yield name, number, f"{call} is in no public header"


def check_front(name, text):
    count = len(text.splitlines())
    if count > MAX_FRONT_LINES:
        yield name, count, f"the front page has {count} lines, above {MAX_FRONT_LINES}: move something to docs/"


def check_leftovers(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield name, number, "unfinished business belongs into an issue, not into the code"


def check_descriptors(name, text):
    """Descriptors are 3 or more (base/files/fd.h): a program whose standard streams are closed must not write into
    ours."""
    if name in MAY_MAKE_STREAMS:
        return
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        for match in re.finditer(MAKES_DESCRIPTOR, line):
            if not line[:match.start()].endswith(("tt__fd(", "tt__fd((int)")):
                yield name, number, f"{match[1]}() outside of tt__fd() may give a standard stream's number"


def site_macros(headers):
    """Macros of public headers that put the caller's file and line into a call."""
    return set(re.findall(r"#\s*define (tt_\w+)\([^)]*\)[^\n]*\bTT_CALL\(", headers.replace("\\\n", " ")))


def check_sites(name, text, macros):
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        for called in re.findall(r"(?<!\w)(tt_\w+)\(", line):
            if called in macros:
                yield name, number, f"{called}() names this line in errors: call {called}_with() with .file in words"


FLOAT_CONVERSION = r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?[lL]?[aAeEfFgG]"
BY_LOCALE = {r"strto(?:d|f|ld)|atof": ("the locale's decimal point: use tt__read_f64(), tt__parse_f64() "
                                       "(base/text/parse.h)"),
             r"v\w*printf|vasprintf": "the locale's decimal point: use tt__vformat() (base/text/format.h)",
             r"json_(?:load|dump)\w*": "jansson asks for the locale: use tt__json_...() (base/text/json.h)",
             r"strn?casecmp": "the locale says which letters belong together: use tt__equal_ignoring_case()"}
MAY_SEE_LOCALE = ("src/base/text/format.c", "src/base/text/json.h", "src/base/text/parse.c")


def call_text(text, begin):
    """The arguments of a call, whose "(" is at `begin`."""
    depth = 0
    for match in re.finditer(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[()]', text[begin:]):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth:
            return text[begin:begin + match.end()]
    return ""


def check_locale(name, text):
    """What a program's locale changes: numbers with a point, and which letters are the same."""
    if name in MAY_SEE_LOCALE:
        return
    bare = strip_comments(text)
    for functions, finding in BY_LOCALE.items():
        for match in re.finditer(rf"(?<![\w.>])({functions})\s*\(", bare):
            yield name, bare.count("\n", 0, match.start()) + 1, f"{match[1]}(): {finding}"
    for match in re.finditer(r"(?<![\w.>])(\w*(?:printf|scanf))\s*\(", bare):
        literals = re.findall(r'"((?:\\.|[^"\\\n])*)"', call_text(text, match.end() - 1))
        if any(re.search(FLOAT_CONVERSION, literal.replace("%%", "")) for literal in literals):
            yield (name, bare.count("\n", 0, match.start()) + 1,
                   f"{match[1]}() of a float: the locale's decimal point: use tt__format() or tt__print() "
                   "(base/text/format.h)")


def check_settings(name, text, manual):
    """Variables stand in the sources as strings of their own, however they are read."""
    for number, line in enumerate(text.splitlines(), 1):
        for variable in re.findall(r'"(TT_[A-Z_]+)"', line):
            if not variable.startswith("TT_ERR_") and not re.search(rf"\b{variable}\b", manual):
                yield name, number, f"no manual page names {variable}"


def settings_in(text):
    """Variables of ours stand in the sources as strings of their own."""
    return {name for name in re.findall(r'"((?:TT|TUTTI)_[A-Z_]+)"', text) if not name.startswith("TT_ERR_")}


def check_settings_page(page, text, read):
    """`text`: of the page whose tables' first column has the names. `read`: name -> a source that has it."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`((?:TT|TUTTI)_[A-Z_]+)`", " ".join(rows)))
    for variable in sorted(read.keys() - listed):
        yield read[variable], 0, f"{page} has no row for {variable}"
    for variable in sorted(listed - read.keys()):
        yield page, 0, f"no source reads {variable}"


def check_secure(name, text):
    """A program that runs with more rights than its caller has must open no file that the caller names."""
    for number, line in enumerate(text.splitlines(), 1):
        for argument in re.findall(r"(?<!\w)getenv\(([^)]*)\)", line):
            by_table = name in READ_BY_TABLE and '"' not in argument
            if argument and not by_table and argument.strip('"') not in NAME_NO_PATH:
                yield name, number, f"getenv({argument}): secure_getenv(), or NAME_NO_PATH of tools/lint.py"


def public_functions(text):
    return set(re.findall(r"^TT_API\b[^;]*?\b(tt_\w+)\s*\(", strip_comments(text), flags=re.M))


def check_symbols(library, exported, declared):
    """`exported`: the library's public symbols; `declared`: the public functions it must have."""
    for symbol in sorted(exported - declared):
        yield library, 0, f"exports {symbol}, which no public header declares"
    for symbol in sorted(declared - exported):
        yield library, 0, f"does not define {symbol}, which a public header declares"


def check_private(library, exported, used, user):
    """`exported`: what the library offers under its private version node; `used`: what `user`, its only users, take of
    it."""
    for symbol in sorted(exported - used):
        yield library, 0, f"exports {symbol}, which {user} uses: no TT__EXPORT there"


def dynamic_symbols(library, *options):
    """Name -> version node of what a shared library exports, or with "--undefined-only" of what it takes from
    others."""
    lines = subprocess.run(["nm", "-D", "--with-symbol-versions", *(options or ["--defined-only"]), str(library)],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = {}
    for line in lines:
        kind, name = line.split()[-2:]
        if kind in "TDBRVWU":
            name, _, node = name.partition("@")
            symbols[name] = node.lstrip("@")
    return symbols


def of_node(symbols, prefix):
    return {name for name, node in symbols.items() if node.startswith(prefix)}


def object_symbols(build):
    """Of all objects of the build: triples of a file, a letter as nm prints it, a symbol. Those of the layers go by the
    names of their sources, of which some are compiled several times, without those whose source is gone."""
    files = {}
    for path in sorted(build.glob("**/*.dir/**/*.o")):
        source = re.sub(r".*/(?=src/)", "", str(path)).removesuffix(".o")
        if (ROOT / source).exists() or not source.startswith("src/"):
            files[path] = source
    lines = subprocess.run(["nm", "-A", "-g", *map(str, files)], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    for line in lines:
        path, rest = line.split(":", 1)
        letter, symbol = rest.split()[-2:]
        yield files[pathlib.Path(path)], letter, symbol


def source_findings():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("src/**/*.[ch]")}
    yield from check_folders([*texts, *(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.[ch]"))])
    yield from check_file_names(texts)
    yield from check_static_names(texts)
    headers = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("include/tutti/*.h")}
    yield from check_states(texts)
    yield from check_type_names(texts | headers)
    yield from check_words(texts | headers)
    yield from check_include_circles(texts)
    files = {path.name for folder in COLUMN_FOLDERS for path in (ROOT / folder).rglob("*.*")}
    commented = {str(path.relative_to(ROOT)): path.read_text() for folder in ("src", "include", "plugins", "tests")
                 for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h", ".cu")}
    page = ROOT / "ARCHITECTURE.md"
    commented |= {page.name: page.read_text()} if page.exists() else {}
    yield from check_mentions(commented, files)
    yield from check_callers({str(path.relative_to(ROOT)): path.read_text() for folder in CALLERS_FOLDERS
                              for path in (ROOT / folder).rglob("*") if path.suffix in CALLERS_SUFFIXES})
    macros = site_macros("".join(path.read_text() for path in ROOT.glob("include/tutti/*.h")))
    for path in sorted(ROOT.glob("src/*/**/*.[ch]")):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        layer = path.relative_to(ROOT / "src").parts[0]
        yield from check_layers(name, text, layer)
        inside = str(path.parent.relative_to(ROOT / "src" / layer))
        if layer == "comm" and inside != ".":
            yield from check_inside_comm(name, text, inside)
        yield from check_sizes(name, text)
        yield from check_leftovers(name, text)
        yield from check_quiet(name, text, layer)
        yield from check_descriptors(name, text)
        yield from check_locale(name, text)
        if layer != "cli":
            yield from check_sites(name, text, macros)
        if layer == "autograd" and path.stem not in MAY_SEE_ELEMENTS:
            yield from check_operators(name, text)
    for path in sorted(ROOT.glob("include/tutti/*.h")):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if path.stem != "tutti":
            yield from check_layers(name, text, LAYER_OF_HEADER.get(path.stem, path.stem))
        yield from check_documents(name, text)
        yield from check_contract(name, text)
    for folder in COLUMN_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in COLUMN_SUFFIXES and path.is_file() and "corpus" not in path.parts:
                yield from check_columns(str(path.relative_to(ROOT)), path.read_text())
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        yield from check_page_columns(str(path.relative_to(ROOT)), path.read_text())
    declared = [path.read_text() for pattern in ("include/tutti/**/*.h*", "cmake/*") for path in ROOT.glob(pattern)]
    known = " ".join(sorted({call for text in declared for call in re.findall(r"\btt_\w+", text)}))
    for path in sorted(path for pattern in LINKING_PAGES for path in ROOT.glob(pattern)):
        yield from check_links(str(path.relative_to(ROOT)), path.read_text())
        yield from check_paths(str(path.relative_to(ROOT)), path.read_text())
        if path.name not in OF_ALL_TIMES:
            yield from check_calls(str(path.relative_to(ROOT)), path.read_text(), known)
    if (ROOT / "README.md").exists():
        yield from check_front("README.md", (ROOT / "README.md").read_text())
    pages = sorted(path for pattern in INDEXED for path in ROOT.glob(pattern))
    yield from check_index(INDEX, (ROOT / INDEX).read_text() if pages else "", pages)
    manual = "".join(path.read_text() for path in sorted(ROOT.glob("docs/man/*.1")))
    for pattern in ("src/**/*.[ch]", "plugins/**/*.c", "plugins/**/*.cc"):
        for path in sorted(ROOT.glob(pattern)):
            yield from check_settings(str(path.relative_to(ROOT)), path.read_text(), manual)
            if pattern.startswith("src"):
                yield from check_secure(str(path.relative_to(ROOT)), path.read_text())
    read = {}
    for pattern in ("src/**/*.[ch]", "plugins/**/*.c", "plugins/**/*.cc", "bindings/**/*.cpp", "bindings/**/*.hpp",
                    "bindings/**/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            read |= dict.fromkeys(settings_in(path.read_text()), str(path.relative_to(ROOT)))
    page = ROOT / "docs" / "environment.md"
    yield from check_settings_page("docs/environment.md", page.read_text() if page.exists() else "", read)
    for pattern in ("plugins/**/*.c", "plugins/**/*.cc", "tests/**/*.c", "examples/**/*.c", "bench/**/*.c"):
        for path in sorted(ROOT.glob(pattern)):
            name, text = str(path.relative_to(ROOT)), path.read_text()
            yield from check_sizes(name, text)
            yield from check_leftovers(name, text)


def library_findings(build):
    headers = {path.stem: public_functions(path.read_text()) for path in ROOT.glob("include/tutti/*.h")}
    everything = set().union(*headers.values())
    comm = set().union(*(found for name, found in headers.items() if LAYER_OF_HEADER.get(name, name) in COMM_LAYERS))
    for name, declared in (("libtutti-comm.so", comm), ("libtutti.so", everything - comm)):
        exported = dynamic_symbols(build / "lib" / name)
        private = of_node(exported, PRIVATE_NODE)
        yield from check_symbols(name, exported.keys() - private, declared)
        used = set()
        if name == "libtutti-comm.so":
            used = of_node(dynamic_symbols(build / "lib" / "libtutti.so", "--undefined-only"), PRIVATE_NODE)
            used |= {word for path in ROOT.glob("bindings/**/*.cpp")
                     for word in re.findall(r"\btt__\w+", path.read_text())}
        yield from check_private(name, private, used, "neither libtutti nor bindings")
    symbols = list(object_symbols(build))
    yield from check_circles([found for found in symbols if found[0].startswith("src/")])
    yield from check_statics(symbols)


def main():
    build = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    findings = [*source_findings(), *wrappers.findings(), *operators.findings(), *run_flags.findings(),
                *library_findings(build)]
    for name, number, text in findings:
        print(f"{name}:{number}: {text}" if number else f"{name}: {text}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
