"""tools/lint.py finds what it is there to find, and leaves good code alone."""
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
spec = importlib.util.spec_from_file_location("lint", SOURCE / "tools" / "lint.py")
lint = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lint)


def lines(findings):
    return [number for _, number, _ in findings]


class Layers(unittest.TestCase):
    def test_downwards_is_fine(self):
        text = '#include "comm/work.h"\n#include <tutti/store.h>\n#include "base/error.h"\n#include <stdio.h>\n'
        self.assertEqual(lines(lint.check_layers("x", text, "reducer")), [])

    def test_upwards_and_sideways_are_found(self):
        text = '#include "nn/module.h"\n#include <tutti/tensor.h>\n#include "base/error.h"\n#include <tutti/tutti.h>\n'
        self.assertEqual(lines(lint.check_layers("x", text, "comm")), [1, 2, 4])

    def test_own_files_carry_their_layer(self):
        self.assertEqual(lines(lint.check_layers("x", '#include "error.h"\n', "base")), [1])

    def test_the_two_stacks_meet_in_parallel_only(self):
        for layer in lint.BELOW:
            sees_both = {"comm", "tensor"} <= lint.allowed(layer)
            self.assertEqual(sees_both, layer in ("parallel", "trainer", "cli"), layer)


class InsideComm(unittest.TestCase):
    def test_floors(self):
        text = ('#include "comm/work.h"\n#include "comm/watch/verdicts.h"\n#include "comm/shared/shm.h"\n'
                '#include "comm/new.h"\n')
        self.assertEqual(lines(lint.check_inside_comm("x", text, "watch")), [4])
        self.assertEqual(lines(lint.check_inside_comm("x", text, "reduce")), [2, 3, 4])
        self.assertEqual(lines(lint.check_inside_comm("x", text, "collective/shared")), [2, 4])

    def test_floors_have_no_way_back(self):
        message = {"message", "message/joining"}  # the engine's state stands in one, and its top opens the other
        uses = {folder: set(below) - message for folder, below in lint.INSIDE_COMM.items()}
        self.assertEqual(lint.find_circles(uses), [])


class Links(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "docs" / "a.md").write_text("# A: `one`, [two](b.md)\n```\n# no heading\n```\n## Same\n## Same\n")
        (self.root / "docs" / "b.md").write_text("")

    def found(self, text):
        return lines(lint.check_links("docs/b.md", text, self.root))

    def test_files_and_headings_that_are_there_are_fine(self):
        self.assertEqual(self.found("[x](a.md) [`y`](../docs/a.md#same-1)\n[z](https://example.org/q.md#r)\n"), [])
        self.assertEqual(self.found("# Own\n[x](#own) [y](a.md#a-one-two)\n"), [])

    def test_others_are_found(self):
        self.assertEqual(self.found("[x](c.md)\n[x](a.md#no-heading)\n[x](a.md#same-2) [x](#own)\n"), [1, 2, 3, 3])

    def test_paths_that_are_not_there_are_found(self):
        (self.root / "tests" / "fault" / "comm").mkdir(parents=True)
        (self.root / "tests" / "fault" / "comm" / "test_idle.c").write_text("")
        text = ("`tests/fault/comm/test_idle`, tests/fault/comm/test_*, `tests/fault/test_idle`, build/tests/none\n"
                "```\nsrc/mask.c\n```\nsrc/NAME/a.c, `src/mask.c`.\n")
        self.assertEqual(lines(lint.check_paths("docs/c.md", text, self.root)), [1, 5])

    def test_calls_that_no_header_has_are_found(self):
        known = "tt_sum tt_all_reduce_with"
        self.assertEqual(lines(lint.check_calls("x.md", "`tt_all_reduce()` tt_sum\nand tt_sums\n", known)), [2])

    def test_the_front_page_is_short(self):
        self.assertEqual(lines(lint.check_front("README.md", "x\n" * 120)), [])
        self.assertEqual(lines(lint.check_front("README.md", "x\n" * 121)), [121])

    def test_code_is_left_alone(self):
        self.assertEqual(self.found("```\na[0](c.md)\n```\n`[x](c.md)`\n"), [])

    def test_the_index_names_every_page(self):
        pages = sorted(self.root.glob("docs/*.md"))
        found = list(lint.check_index("docs/README.md", "[b](b.md)\n", pages, self.root))
        self.assertEqual([text.split(":")[0] for _, _, text in found], ["does not link to docs/a.md"])
        self.assertEqual(list(lint.check_index("docs/b.md", "[a](a.md#same)\n", pages, self.root)), [])


class Circles(unittest.TestCase):
    def test_two_and_more_are_found_and_trees_are_not(self):
        uses = {"a": {"b", "d"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a", "e"}, "g": set()}
        self.assertEqual(sorted(lint.find_circles(uses)), [["a", "b", "c"], ["d", "e"]])
        self.assertEqual(lint.find_circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}), [])

    def test_symbols_tell_who_uses_whom(self):
        symbols = [("a.c", "T", "f"), ("a.c", "U", "g"), ("b.c", "T", "g"), ("b.c", "U", "table"),
                   ("c.c", "D", "table"),
                   ("c.c", "U", "f"), ("d.c", "U", "f"), ("d.c", "U", "malloc"), ("d.c", "T", "h")]
        found = list(lint.check_circles(symbols))
        self.assertEqual([name for name, _, _ in found], ["a.c"])
        self.assertIn("b.c, c.c", found[0][2])


class IncludeCircles(unittest.TestCase):
    def test_a_source_and_its_header_are_one_file(self):
        texts = {"src/net/seal.h": '#include "net/stream.h"\n#include <tutti/base.h>\n', "src/net/seal.c": "",
                 "src/net/stream.h": "", "src/net/stream.c": '#include "net/stream.h"\n#include "net/seal.h"\n'}
        found = list(lint.check_include_circles(texts))
        self.assertEqual([name for name, _, _ in found], ["src/net/seal.h"])
        self.assertIn("src/net/stream", found[0][2])
        texts["src/net/seal.h"] = '#include "net/secure/io.h"\n'
        self.assertEqual(list(lint.check_include_circles(texts | {"src/net/io.h": ""})), [])

    def test_folders_are_looked_at_one_by_one(self):
        texts = {"src/comm/world.h": '#include "comm/shared/doorbell.h"\n', "src/comm/shared/doorbell.c":
                 '#include "comm/shared/doorbell.h"\n#include "comm/world.h"\n', "src/comm/shared/doorbell.h": ""}
        self.assertEqual(list(lint.check_include_circles(texts)), [])


class Statics(unittest.TestCase):
    def test_what_no_other_file_uses_is_found(self):
        symbols = [("src/a.c", "T", "tt__own"), ("src/a.c", "U", "tt__own"), ("src/a.c", "D", "tt__table"),
                   ("src/a.c", "T", "tt__shared"), ("src/b.c", "U", "tt__shared"), ("src/a.c", "T", "tt__tested"),
                   ("tests/x.o", "U", "tt__tested"), ("tests/x.o", "T", "tt__of_a_test"), ("src/b.c", "T", "tt_public")]
        found = list(lint.check_statics(symbols))
        self.assertEqual([name for name, _, _ in found], ["src/a.c", "src/a.c"])
        self.assertIn("tt__own is used by no other file", found[0][2])
        self.assertIn("tt__table is", found[1][2])


class Quiet(unittest.TestCase):
    def test_printing_and_ending_are_found(self):
        text = ('int f(void) {\n    printf("x");\n    fprintf(stderr, "x");\n    abort();\n    _exit(1);\n'
                '    tt__print(stdout, "x");\n    tt__print(file, "x");\n}\n')
        self.assertEqual(lines(lint.check_quiet("x", text, "comm")), [2, 3, 4, 5, 6])

    def test_other_ways_to_print_and_to_end_are_found(self):
        text = ('void f(void) {\n    dprintf(2, "x");\n    write(STDERR_FILENO, s, n);\n    fwrite(s, 1, n, stdout);\n'
                '    write(1, s, n);\n    raise(SIGABRT);\n    write(fd, s, n);\n    fwrite(s, 1, n, file);\n}\n')
        self.assertEqual(lines(lint.check_quiet("x", text, "comm")), [2, 3, 4, 5, 6])

    def test_the_command_may_do_both_and_its_keeper_may_end(self):
        text = 'int f(void) {\n    printf("x");\n    _exit(1);\n}\n'
        self.assertEqual(lines(lint.check_quiet("x", text, "cli")), [])
        self.assertEqual(lines(lint.check_quiet("x", text, "launch")), [2])

    def test_what_only_looks_like_it_is_not(self):
        text = ('/* exit( printf( */\nchar *s = "exit(1)";\nsnprintf(a, 3, "x");\nfprintf(file, "x");\n'
                'static_assert(1, "");\natexit_hook();\n')
        self.assertEqual(lines(lint.check_quiet("x", text, "comm")), [])

    def test_report_may_print(self):
        text = 'void tt_report(void) {\n    fprintf(stderr, "x");\n}\nvoid f(void) {\n    fprintf(stderr, "x");\n}\n'
        self.assertEqual(lines(lint.check_quiet("x", text, "comm")), [5])


class Descriptors(unittest.TestCase):
    def test_those_that_may_be_standard_streams_are_found(self):
        text = ("int fd = open(path, O_RDONLY);\nint s = tt__fd(socket(AF_INET, 0, 0));\n"
                "fd = tt__fd((int)syscall(SYS_pidfd_open, 1, 0));\n"
                "/* open(x) */\ntable->open(x);\nfd = syscall(SYS_pidfd_open, pid, 0);\ntt__poller_open(m);\n")
        self.assertEqual(lines(lint.check_descriptors("src/net/x.c", text)), [1, 6])
        self.assertEqual(lines(lint.check_descriptors("src/base/files/fd.c", text)), [])


class Operators(unittest.TestCase):
    def test_types_and_elements_are_found(self):
        text = ("if (x->dtype == TT_F32)\n    f();\nswitch (x->dtype) {\nfloat *p = x->data;\n"
                "v = *(double *)g->data;\ntt__empty_beside(who, x, shape, x->dtype);\nint64_t n = x->numel;\n"
                "if (tt_tensor_dtype(x) == wanted)\nif (tt_dtype_size(x->dtype) == 4)\nmemcpy(&v, x->data, 4);\n"
                "v = tt_tensor_f32(x)[0];\n")
        self.assertEqual(lines(lint.check_operators("x", text)), [1, 3, 4, 5, 8, 9, 10, 11])

    def test_every_file_of_autograd_is_looked_at(self):
        with tempfile.TemporaryDirectory() as folder:
            root, lint.ROOT = lint.ROOT, pathlib.Path(folder)
            try:
                (lint.ROOT / "src" / "autograd").mkdir(parents=True)
                for name in ("op_new.c", "loss.c", "custom.h", "record.c"):
                    (lint.ROOT / "src" / "autograd" / name).write_text("if (x->dtype == TT_F32)\n")
                found = [name for name, _, text in lint.source_findings() if "element types" in text]
            finally:
                lint.ROOT = root
        self.assertEqual(found, [f"src/autograd/{name}" for name in ("custom.h", "loss.c", "op_new.c")])


class Sites(unittest.TestCase):
    def test_calls_say_what_they_are_part_of(self):
        macros = lint.site_macros("#define tt_a(x_, ...) \\\n    tt_a_with(TT_CALL(tt_a_args, x_))\n"
                                  "#define tt_b(x_) tt_b_with(TT_ARGS(tt_b_args, x_))\n")
        self.assertEqual(macros, {"tt_a"})
        self.assertEqual(lines(lint.check_sites("x", "tt_a(1);\ntt_b(1);\ntt_a_with(1);\n/* tt_a(1) */\n", macros)),
                         [1])


class Locale(unittest.TestCase):
    def test_floats_and_letters_go_through_one_place(self):
        text = ('x = strtod(a, NULL);\nsnprintf(t, 9, "%5.1f %%", x);\nfprintf(f,\n        "a (%s) "\n'
                '        "%g", a, x);\nvsnprintf(t, 9, format, list);\njson_dumps(j, 0);\nif (!strcasecmp(a, b))\n'
                '    sscanf(a, "%lf", &x);\n')
        self.assertEqual(sorted(lines(lint.check_locale("src/x.c", text))), [1, 2, 3, 6, 7, 8, 9])
        self.assertEqual(lines(lint.check_locale("src/base/text/format.c", text)), [])

    def test_other_numbers_are_left_alone(self):
        text = ('snprintf(t, 9, "%d%% of %s", a, b);\n/* strtod(a) */ tt__format(t, 9, "%g", x);\n'
                'snprintf(t, 9, "%s", f("%x"));\ntt__json_dumps(j, 0);\n"printf(%g)";\n')
        self.assertEqual(lines(lint.check_locale("src/x.c", text)), [])


class Settings(unittest.TestCase):
    def test_a_variable_must_be_in_the_manual(self):
        text = 'x = getenv("TT_ONE");\ny = option(a, "TT_TWO");\nfail("TT_THREE is wrong");\nname("TT_ERR_PEER");\n'
        self.assertEqual(lines(lint.check_settings("x", text, ".BR TT_ONE \" \" TT_TWO_TIMES")), [2])

    def test_variables_that_name_files_are_read_securely(self):
        text = 'getenv("RANK");\ngetenv("TMPDIR");\nsecure_getenv("TMPDIR");\ngetenv(name); /* as getenv() */\n'
        self.assertEqual(lines(lint.check_secure("x", text)), [2, 4])
        self.assertEqual(lines(lint.check_secure("src/net/secure/secret.c", text)), [2])


    def test_the_page_has_what_is_read(self):
        read = dict.fromkeys(lint.settings_in('get("TT_ONE"); x("TT_TWO"); fail("TT_THREE: no"); name("TT_ERR_PEER");'),
                             "x.c")
        page = "TT_FOUR\n| name | what |\n| --- | --- |\n| `TT_ONE`, `TT_FIVE` | as `TT_TWO` |\n"
        self.assertEqual([(name, text) for name, _, text in lint.check_settings_page("p", page, read)],
                         [("x.c", "p has no row for TT_TWO"), ("p", "no source reads TT_FIVE")])


class Documents(unittest.TestCase):
    def test_one_comment_covers_its_paragraph(self):
        text = "/* Both. */\nTT_API int tt_a(void);\nTT_API int tt_b(void);\n\nTT_API int tt_c(void);\n"
        self.assertEqual(lines(lint.check_documents("x", text)), [5])


class Contract(unittest.TestCase):
    GOOD = ("TT_API tt_status tt_last_status(void);\ntypedef struct tt_x_args {\n    int64_t count;\n} tt_x_args;\n"
            "TT_API TT_NODISCARD tt_status tt_x_with(const tt_x_args *args, size_t size);\n"
            "#define TT_X_ARGS_INIT TT_ARGS_INIT\nTT_API void tt_y(size_t bytes, int rank, int dim);\n")

    def test_good_headers_are_left_alone(self):
        self.assertEqual(lines(lint.check_contract("x", self.GOOD)), [])

    def test_each_fault_is_found(self):
        for good, bad, line in (("TT_API TT_NODISCARD", "TT_API", 5), ("#define TT_X_ARGS_INIT TT_ARGS_INIT", "", 4),
                                ("tt_x_with", "tt_x", 4), ("int64_t count", "size_t count", 3),
                                ("int dim", "int n", 7)):
            self.assertEqual(lines(lint.check_contract("x", self.GOOD.replace(good, bad))), [line], bad)


class Folders(unittest.TestCase):
    def test_full_ones_are_found_and_rooms_count_alone(self):
        names = [f"src/a/{i}.c" for i in range(45)] + ["src/a/room/x.c"] + [f"src/b/{i}.h" for i in range(46)]
        self.assertEqual([name for name, _, _ in lint.check_folders(names)], ["src/b"])


class Callers(unittest.TestCase):
    def test_what_nobody_calls_is_found(self):
        header = ("/* tt__none() */\nint tt__none(void);\nint tt__used(int a,\n             int b);\n"
                  "int tt__table(void);\n")
        source = ("int tt__none(void) {\n    return 0;\n}\n"
                  "int tt__used(int a,\n             int b) {\n    return a;\n}\n")
        caller = "static int f(void) {\n    return tt__used(1, 2);\n}\nint (*t)(void) = tt__table;\n"
        texts = {"src/a.h": header, "src/a.c": source, "src/b.c": caller}
        found = list(lint.check_callers(texts))
        self.assertEqual([(name, line) for name, line, _ in found], [("src/a.h", 2)])
        self.assertIn("tt__none is called by nobody", found[0][2])


class Words(unittest.TestCase):
    def test_phrases_in_comments_are_found(self):
        text = "int a; /* b,\n * but\n * for c */\nchar *d = \"likewise\"; /* Likely so, but forever. */\n"
        found = list(lint.check_words({"src/a.c": text}))
        self.assertEqual([(name, line) for name, line, _ in found], [("src/a.c", 2)])
        self.assertIn('"but for"', found[0][2])


class Mentions(unittest.TestCase):
    def test_a_file_that_is_gone_is_found(self):
        source = ("int x; /* As net/io.h says.\n * And gone.c, comm/old.h; tt_NAME.c, \"transformer.h.0\". */\n"
                  "#include \"none.h\"\n")
        texts = {"src/a.c": source, "ARCHITECTURE.md": "`io.h` and\n`away.c`\n"}
        found = list(lint.check_mentions(texts, {"io.h"}))
        self.assertEqual([(name, line) for name, line, _ in found], [("src/a.c", 2), ("src/a.c", 2),
                                                                     ("ARCHITECTURE.md", 2)])
        self.assertIn("gone.c is named", found[0][2])


class States(unittest.TestCase):
    def test_a_heap_of_booleans_is_found(self):
        text = ("struct tt__a {\n    bool one, two; /* bool no; */\n    int n;\n    bool three;\n"
                "    bool four, five;\n};\n")
        few = "struct tt__b {\n    bool one, two, three;\n};\n"
        state = "src/launch/machine/machine_state.h"
        found = list(lint.check_states({state: few + text, "src/launch/local/streams.h": text}))
        self.assertEqual([(name, line) for name, line, _ in found], [(state, 4)])
        self.assertIn("tt__a has 5 booleans", found[0][2])


class FileNames(unittest.TestCase):
    def test_one_name_in_two_folders_is_found(self):
        names = ["src/a/copy.c", "src/a/copy.h", "src/a/reduce.c", "src/a/b/reduce.c", "src/c/copy.h", "src/c/plain.c"]
        found = list(lint.check_file_names(names))
        self.assertEqual([name for name, _, _ in found], ["src/a/reduce.c", "src/c/copy.h"])
        self.assertIn("src/a/copy.c", found[1][2])


class StaticNames(unittest.TestCase):
    def test_declarations_are_read(self):
        text = ("static int f(int a) {\n    static int no = g();\n}\n/* static int g(void); */\n"
                "static const char *\nlong_name(void);\nstatic __attribute__((noinline)) void slow(int a,\n"
                "                                           int b);\nstatic inline tt__x *h(void) {\n}\n"
                "static const int table[] = {1};\nstatic void NAME(adam)(int a) {\n}\nint public(void);\n")
        self.assertEqual(lint.static_functions(text), {"f", "long_name", "slow", "h"})

    def test_one_name_in_two_files_is_found(self):
        texts = {"b.c": "static void check(int a) {\n}\nstatic void b_print(void);\nstatic void b_print(void) {\n}\n",
                 "a.c": "static int check(void) {\n}\n", "c.c": "void check(void);\n"}
        found = list(lint.check_static_names(texts))
        self.assertEqual([name for name, _, _ in found], ["b.c"])
        self.assertIn("check() is also the name of a function in a.c", found[0][2])


class TypeNames(unittest.TestCase):
    def test_definitions_are_read(self):
        text = ("typedef struct tt__a {\n    struct { int x; } y;\n} tt__a;\ntypedef struct tt__forward tt__forward;\n"
                "/* struct tt__no { */\nenum tt__b { TT__B };\ntypedef tt_status (*tt__c)(void (*f)(int a),\n"
                "    int b);\ntypedef int tt__d[3];\ntypedef struct tt__a tt__e;\n"
                "struct tt__f *f(struct tt__g g) {\n}\n")
        self.assertEqual(lint.type_definitions(text), {"tt__a": 1, "tt__b": 6, "tt__c": 7, "tt__d": 9, "tt__e": 10})

    def test_one_name_in_two_files_is_found(self):
        texts = {"a.h": "typedef struct tt__stream {\n} tt__stream;\ntypedef struct tt__part tt__part;\n",
                 "b.h": "\ntypedef enum tt__stream { A } tt__stream;\ntypedef struct tt__part tt__part;\n",
                 "c.c": "struct tt__part {\n};\ntypedef struct stage {\n} stage;\n",
                 "d.c": "typedef struct stage {\n} stage;\n"}
        found = list(lint.check_type_names(texts))
        self.assertEqual([(name, number) for name, number, _ in found], [("b.h", 2)])
        self.assertIn("tt__stream is also the name of a type in a.h", found[0][2])


class Sizes(unittest.TestCase):
    def test_long_function(self):
        body = "    x++;\n"
        short = "int f(void) {\n" + body * 78 + "}\n"
        long = "int g(int a,\n      int b) {\n" + body * 79 + "}\n"
        self.assertEqual(lines(lint.check_sizes("x", short)), [])
        self.assertEqual(lines(lint.check_sizes("x", short + long)), [82])

    def test_long_file(self):
        self.assertEqual(lines(lint.check_sizes("x", "\n" * 601)), [601])


class Columns(unittest.TestCase):
    def test_long_line(self):
        self.assertEqual(lines(lint.check_columns("x", "a" * 120 + "\n" + "ä" * 120 + "\n" + "b" * 121)), [3])


    def test_long_lines_of_pages(self):
        long = "a " * 61
        text = f"{long}\n| {long} |\n- https://{'a' * 120}\n- {long}\n```\n| {long}\n{'a' * 121}\n```\n| {long} |\n"
        self.assertEqual(lines(lint.check_page_columns("x", text)), [1, 4, 6, 7])


class Symbols(unittest.TestCase):
    def test_declarations_are_read(self):
        text = "/* TT_API int tt_no(void); */\nTT_API const char *tt_a(int x,\n    int y);\nTT_API void tt_b(void);\n"
        self.assertEqual(lint.public_functions(text), {"tt_a", "tt_b"})

    def test_both_directions(self):
        found = [text for _, _, text in lint.check_symbols("l", {"tt_a", "tt__x"}, {"tt_a", "tt_b"})]
        self.assertEqual(len(found), 2)
        self.assertIn("tt__x", found[0])
        self.assertIn("tt_b", found[1])

    def test_what_only_the_sister_may_use_must_be_used(self):
        found = [text for _, _, text in lint.check_private("l", {"tt__a", "tt__b"}, {"tt__b"}, "k")]
        self.assertEqual(len(found), 1)
        self.assertIn("tt__a", found[0])

    def test_nodes_are_read_from_a_library(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "a.c").write_text("void tt_a(void) {}\nvoid tt__b(void) {}\nvoid tt__c(void) {}\n")
            (folder / "a.map").write_text("A_1 { global: tt_[a-z]*; local: *; };\nPRIVATE_1 { global: tt__b; };\n")
            (folder / "b.c").write_text("void tt__b(void);\nvoid tt_d(void);\nvoid tt_d(void) { tt__b(); }\n")
            for words in (["a.c", "-o", "liba.so", "-Wl,--version-script=a.map"], ["b.c", "-o", "libb.so", "liba.so"]):
                subprocess.run(["cc", "-shared", "-fPIC", *words], cwd=folder, check=True)
            exported = lint.dynamic_symbols(folder / "liba.so")
            self.assertEqual(exported.keys(), {"tt_a", "tt__b"})
            self.assertEqual(lint.of_node(exported, "PRIVATE_"), {"tt__b"})
            used = lint.dynamic_symbols(folder / "libb.so", "--undefined-only")
            self.assertEqual(lint.of_node(used, "PRIVATE_"), {"tt__b"})


if __name__ == "__main__":
    unittest.main()
