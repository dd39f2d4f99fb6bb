"""tools/run_flags.py reads the table of the flags of tutti run, and finds what no longer says the same."""
import importlib.util
import os
import pathlib
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).resolve().parents[2]))

spec = importlib.util.spec_from_file_location("run_flags", SOURCE / "tools" / "run_flags.py")
run_flags = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_flags)

ROWS = r'''
/* FLAG(a comment, "that is none") */
HEADING("Ranks:")
FLAG(log_dir, "log-dir", 0, OR_NONE(TEXT("DIR", NULL)), "keep \"logs\", and (more) " "in DIR" MORE("Made anew."), NONE,
     TORCHRUN("same | more"))
FLAG(module, "module", 'm', SWITCH, "a module", NONE, OURS)
FLAG(tries, "tries", 0, NUMBER("N", 0, 1 << 24), "how often", DEFAULT("3"), TORCHRUN("same"))
FLAG(start, "start", 0, CHOICE("NAME", "a b"), HIDDEN, NONE, TORCHRUN("checked"))
#undef FLAG
'''
PAGE = f"before\n<!-- {run_flags.BEGIN} -->\nold\n<!-- {run_flags.END} -->\nafter\n"


class RunFlags(unittest.TestCase):
    def test_rows(self):
        log_dir, module, tries, start = run_flags.read_table(ROWS)
        self.assertEqual(log_dir, ("Ranks", "log_dir", "log-dir", "", "TEXT", True, "DIR",
                                   'keep "logs", and (more) in DIR', "Made anew.", None, "same | more"))
        self.assertEqual((module.letter, module.kind, module.value, module.torchrun), ("m", "SWITCH", "", None))
        self.assertEqual((tries.kind, tries.value, tries.default, start.help), ("NUMBER", "N", "3", None))

    def test_manual(self):
        self.assertEqual(list(run_flags.manual(run_flags.read_table(ROWS)))[:7],
                         [".SS Ranks", ".TP", r"\fB\-\-log\-dir=\fIDIR\fR", 'Keep "logs", and (more) in DIR.',
                          "Made anew.", ".TP", r"\fB\-m\fR, \fB\-\-module\fR"])

    def test_page(self):
        made = run_flags.made_page(PAGE, "page.md", "<!-- ", " -->", (run_flags.torchrun_page,),
                                   run_flags.read_table(ROWS))
        self.assertIn("\n| `--tries` | same |\n", made)
        self.assertTrue(made.startswith("before\n") and made.endswith("after\n") and "old" not in made)
        self.assertNotIn("module", made)
        with self.assertRaisesRegex(run_flags.Mistake, "page.md: expected 1 times the lines"):
            run_flags.made_page("nothing", "page.md", "<!-- ", " -->", (run_flags.torchrun_page,), [])

    def test_mistakes(self):
        for change, said in ((("FLAG(log_dir", "FLAG(logdir"), "the field of --log-dir is logdir: expected log_dir"),
                             (("SWITCH", "KNOB"), "KNOB is no kind of flag"),
                             (('"tries"', '"log-dir"'), "the field of --log-dir is tries"),
                             (('TORCHRUN("checked")', "OURS"), "--start is hidden"),
                             (("HEADING", "TITLE"), "expected HEADING")):
            with self.assertRaisesRegex(run_flags.Mistake, said):
                run_flags.read_table(ROWS.replace(*change))
        with self.assertRaisesRegex(run_flags.Mistake, "--log-dir has several rows"):
            run_flags.read_table(ROWS + ROWS)

    def test_pages_are_as_made(self):
        self.assertEqual(list(run_flags.findings()), [])

    def test_a_page_that_differs_is_found(self):
        table = run_flags.table
        run_flags.table = lambda: [flag._replace(help=flag.help and "changed") for flag in table()]
        try:
            found = [name for name, _, _ in run_flags.findings()]
        finally:
            run_flags.table = table
        self.assertEqual(found, ["docs/man/tutti-run.1"])


if __name__ == "__main__":
    unittest.main()
