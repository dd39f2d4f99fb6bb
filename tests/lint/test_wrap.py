"""tools/wrap.py wraps comments that are too long, and changes nothing else."""
import importlib.util
import os
import pathlib
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
spec = importlib.util.spec_from_file_location("wrap", SOURCE / "tools" / "wrap.py")
wrap = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wrap)

LONG = "word " * 30 + "end."


def words(text):
    return [word for word in text.replace("*/", " ").split() if word not in ("*", "/*", "#")]


class Wrap(unittest.TestCase):
    def check(self, before, wrapper=wrap.wrap_c):
        """The text after wrapping, which has the same words, fits, and does not change when wrapped again."""
        after = wrapper(before)
        self.assertEqual(words(after), words(before))
        self.assertLessEqual(max(map(len, after.split("\n"))), wrap.WIDTH)
        self.assertEqual(wrapper(after), after)
        return after

    def test_short_comments_stay(self):
        for text in ("/* One. */\nint x; /* two */\n", "/* A list:\n *\n *   a   b\n *   cc  d */\n", "int y;\n"):
            self.assertEqual(wrap.wrap_c(text), text)

    def test_a_block_wraps(self):
        after = self.check(f"/* {LONG} */\nint x;\n")
        self.assertTrue(after.split("\n")[1].startswith(" * word"))
        self.assertTrue(after.endswith("end. */\nint x;\n"))

    def test_indented_blocks_keep_their_column(self):
        after = self.check(f"struct s {{\n    /* {LONG} */\n    int x;\n}};\n")
        self.assertTrue(after.split("\n")[2].startswith("     * word"))

    def test_list_items_hang_under_their_text(self):
        after = self.check(f"/* Terms:\n *\n *   one  {LONG}\n *   two  short\n */\n").split("\n")
        self.assertTrue(after[3].startswith(" *        word"))
        self.assertEqual(after[4], " *   two  short */")

    def test_a_comment_behind_code_moves_above_it(self):
        after = wrap.wrap_c(f"    int x; /* {LONG} */\n")
        self.assertTrue(after.startswith("    /* word"))
        self.assertTrue(after.endswith("end. */\n    int x;\n"))

    def test_strings_are_not_comments(self):
        text = f'const char *s = "/* {LONG} */";\n'
        self.assertEqual(wrap.wrap_c(text), text)

    def test_hash_comments(self):
        after = self.check(f"x = 1\n    # {LONG}\n    y = 2\n", lambda text: wrap.wrap(text, ".sh"))
        self.assertTrue(after.split("\n")[2].startswith("    # word"))

    def test_docstrings(self):
        text = f'def f():\n    """{LONG} {LONG}\n\n    {LONG}\n    """\n    return """{"a" * 130}"""\n'
        after = wrap.wrap(text, ".py")
        self.assertEqual(words(after), words(text))
        self.assertEqual([line for line in after.split("\n") if len(line) > 120],
                         ['    return """' + "a" * 130 + '"""'])
        self.assertEqual(wrap.wrap(after, ".py"), after)
        self.assertIn('\n    """\n    return', after)

    def test_markdown(self):
        kept = f"# {LONG}\n\n| {LONG} |\n\n```sh\n{LONG}\n- {LONG}\n```\n\nA short\nparagraph.\n\n<a>{LONG}\n"
        self.assertEqual(wrap.wrap(kept, ".md"), kept)
        after = self.check(f"{LONG}\n\n- {LONG}\n- one\n  1. {LONG}\n", wrap.wrap_markdown).split("\n")
        starts = ["word wo", "word wo", "- word ", "  word ", "- one", "  1. wo", "     wo"]
        self.assertEqual([line[:7] for line in after if line], starts)

    def test_markdown_keeps_its_meaning(self):
        long = f"`{'code ' * 14}` " + "word " * 8 + "or - this `a b c` and"
        after = self.check(f"{long} {long} # that\n", wrap.wrap_markdown)
        for line in after.split("\n"):
            self.assertNotRegex(line, r"^[-#]")
            self.assertEqual(line.count("`") % 2, 0)


if __name__ == "__main__":
    unittest.main()
