"""The reference made from the headers: every exported function has a page and a place in the HTML, no link leads
nowhere, groff renders all pages without a warning."""
import html.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TT_BUILD"])
SOURCE = pathlib.Path(os.environ["TT_SOURCE"])
spec = importlib.util.spec_from_file_location("reference", SOURCE / "tools" / "reference.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


def exported():
    names = set()
    for library in ("libtutti-comm.so", "libtutti.so"):
        lines = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "lib" / library)], check=True,
                               capture_output=True, text=True).stdout
        names |= set(re.findall(r" T (tt_[a-z]\w*)", lines))
    return names


class Anchors(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []


class OfOurHeaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        subprocess.run(["python3", str(SOURCE / "tools" / "reference.py"), str(cls.out)], check=True)
        cls.pages = {path.name: path.read_text() for path in (cls.out / "man3").iterdir()}
        cls.html = {path.name: Anchors(path.read_text()) for path in (cls.out / "html").iterdir()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def described(self, name):
        text = self.pages.get(f"{name}.3", "")
        target = re.fullmatch(r"\.so man3/(\S+)\n", text)
        return self.pages[target.group(1)] if target else text

    def test_every_function_has_a_page_that_describes_it(self):
        functions = exported()
        self.assertGreater(len(functions), 150)
        for name in sorted(functions):
            self.assertIn(".SH DESCRIPTION", self.described(name), name)
            self.assertIn(name, self.described(name).split(".SH SYNOPSIS")[1].split(".SH")[0], name)

    def test_every_function_has_a_place_in_the_html(self):
        places = [name for page in self.html.values() for name in page.ids]
        self.assertEqual(len(places), len(set(places)), "a name stands in two places")
        self.assertEqual(exported() - set(places), set())

    def test_macros_stand_with_their_functions(self):
        for name in exported():
            if name.endswith("_with"):
                macros = [self.described(name[:-5]), self.described(name[:-4])]
                self.assertIn(self.described(name), macros, name)

    def test_macros_that_are_statements_have_pages(self):
        for name in ("TT_AUTO_SCOPE", "TT_NO_GRAD", "TT_ENABLE_GRAD"):
            self.assertIn(f"#define {name}", self.described(name))

    def test_links_lead_somewhere(self):
        for name, page in self.html.items():
            for link in page.links:
                target, _, place = link.partition("#")
                self.assertIn(target, self.html, f"in {name}")
                if place:
                    self.assertIn(place, self.html[target].ids, f"in {name}")
        for name, text in self.pages.items():
            for other in re.findall(r"^\.BR (\S+) \(3\)", text, flags=re.M):
                self.assertIn(f"{other}.3", self.pages, f"in {name}")

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_groff_warns_of_nothing(self):
        pages = [str(self.out / "man3" / name) for name, text in sorted(self.pages.items())
                 if not text.startswith(".so")]
        made = subprocess.run(["groff", "-mandoc", "-Tutf8", "-Kutf8", "-ww", "-rLL=100n", *pages], check=True,
                              capture_output=True, text=True, encoding="utf-8")
        self.assertEqual(made.stderr, "")
        printed = re.sub(".\b|\033\\[[0-9;]*m", "", made.stdout)  # bold type
        self.assertEqual(printed.count("SYNOPSIS"), len(pages))

    def test_pages_are_found_by_name(self):
        if not shutil.which("man"):
            self.skipTest("there is no man")
        manual = self.out / "manual"
        shutil.copytree(self.out / "man3", manual / "man3")
        for name in ("tt_all_reduce", "tt_all_reduce_with", "tt_reduce_op"):
            made = subprocess.run(["man", "--warnings=w", "-M", str(manual), "3", name], capture_output=True, text=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8"}, check=True)
            self.assertIn(name, made.stdout)
            self.assertEqual(made.stderr, "")


HEADER = """/* tutti/x.h: things. More
 * of them. */
#ifndef TUTTI_X_H
#define TUTTI_X_H
TT_BEGIN_DECLS

typedef struct tt_thing tt_thing; /* made by hand */

/* ---- making
 *
 * All of these block. */

typedef struct tt_make_args {
    int a; /* required; not ";" */
    char tt_end;
} tt_make_args;

/* Make one. Errors: none.
 *   tt_make(3)
 * Errors: TT_ERR_BAD, if a < 0. */
TT_API TT_NODISCARD tt_status tt_make_with(const tt_make_args *args, size_t size);
#ifndef __cplusplus
#define tt_make(...) \\
    tt_make_with(TT_ARGS(tt_make_args, .a = __VA_ARGS__))
#endif

/* Kinds. */
typedef enum tt_kind { TT_GOOD, TT_BAD /* not good */ } tt_kind;
typedef void (*tt_call)(tt_kind kind, void *user);
/* Nothing. */
static inline void tt_ignore(int x) { (void)x; }
TT_API tt_thing *tt_first(void);
TT_API void tt_last(tt_thing *thing,
                    tt_call call);

TT_END_DECLS
#endif
"""


class Reading(unittest.TestCase):
    def setUp(self):
        self.header = reference.gather([reference.read_header("x", HEADER)])[0]
        self.entries = {entry.page(): entry for entry in self.header.entries()}

    def test_names(self):
        self.assertEqual({page: entry.names[1:] for page, entry in self.entries.items()}, {
            "tt_thing": [], "tt_make": ["tt_make_with", "tt_make_args"], "tt_kind": ["tt_call"],
            "tt_ignore": ["tt_first", "tt_last"]})

    def test_sections(self):
        self.assertEqual(self.entries["tt_make"].section, ("making", "All of these block."))
        self.assertEqual(self.entries["tt_thing"].section, ("", ""))

    def test_synopsis(self):
        macro, struct, function = reference.synopsis(self.entries["tt_make"])
        self.assertEqual(macro, "tt_make(a, ...)")
        self.assertIn("required; not", struct)
        self.assertEqual(function, "tt_status tt_make_with(const tt_make_args *args, size_t size);")
        self.assertEqual(reference.synopsis(self.entries["tt_ignore"])[0], "static inline void tt_ignore(int x);")

    def test_text(self):
        self.assertEqual(reference.blocks_of(self.entries["tt_make"].comment), [
            ("text", "Make one. Errors: none."), ("code", "  tt_make(3)"), ("text", "Errors: TT_ERR_BAD, if a < 0.")])
        self.assertEqual(reference.summary(self.entries["tt_make"]), "Make one")
        self.assertEqual(reference.header_summary(self.header), "things")

    def test_escapes(self):
        self.assertEqual(reference.roff(".x\n'y\\n-z"), "\\&.x\n\\(aqy\\en\\-z")
        shown = reference.html_text(self.entries["tt_make"].comment, reference.Links([self.header]))
        self.assertIn("a &lt; 0", shown)
        self.assertIn('<a href="x.html#tt_make">tt_make</a>(3)', shown)

    def test_constants(self):
        self.assertEqual(reference.Links([self.header]).target["TT_BAD"], "x.html#tt_kind")

    def test_cpp_is_shown_without_bodies(self):
        text = ('/* tutti/x.hpp: things. */\n#ifndef X\nnamespace tutti {\n\nnamespace detail {\nint hidden;\n} '
                '// namespace detail\n\n/* ---- making */\n\n/* One:\n * int f() { return 1; } */\n'
                'class thing {\n  public:\n'
                '    thing(int a) : a_(a) {}\n'
                '    int a() const { return a_; }\n    thing(int a, int b)\n        : thing(a) {\n        if (b) {\n'
                '            run();\n        }\n    }\n\n  private:\n    int a_;\n};\n\ninline void f(int a,\n'
                '              int b) {\n    run();\n}\n\n} // namespace tutti\n')
        header = reference.read_cpp_header("x", text)
        kind, title, code = header.parts[0]
        self.assertEqual((header.file, kind, title), ("x.hpp", "section", "making"))
        for shown in ("thing(int a);", "int a() const;", "thing(int a, int b);", "              int b);",
                      " * int f() { return 1; } */"):
            self.assertIn(shown, code)
        for hidden in ("run()", "a_", "private", "hidden"):
            self.assertNotIn(hidden, code)

    def test_a_declaration_without_end_is_an_error(self):
        with self.assertRaises(ValueError):
            reference.read_header("x", "/* a */\n\nTT_API int tt_a(void\n")


if __name__ == "__main__":
    unittest.main()
