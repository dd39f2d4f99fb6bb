"""tools/operators.py names the operators and kernels that a list lacks."""
import importlib.util
import os
import pathlib
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
spec = importlib.util.spec_from_file_location("operators", SOURCE / "tools" / "operators.py")
operators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(operators)

HEADER = """TT_API tt_tensor *tt_blur(tt_tensor *x);
TT_API TT_NODISCARD tt_status tt_rank_with(const tt_rank_args *args, size_t size);
"""
LINES = "OPERATOR(blur, AS_THEY_ARE)\nOPERATOR(rank, AS_THEY_ARE)\n"
CASES = "tt_blur(in[0]) tt_rank(in[0])"
LISTS = "    X(blur, (tt_tensor * y))   \\\n    X(rank,   \\\n      (tt_tensor * y))\n"


class Operators(unittest.TestCase):
    def found(self, header=HEADER, lines=LINES, parity=CASES, cases=CASES):
        return list(operators.of_operators(header, lines, parity, cases))

    def test_nothing_lacks(self):
        self.assertEqual(list(operators.findings()), [])
        self.assertEqual(self.found(), [])
        self.assertGreater(len(operators.listed((SOURCE / operators.MANIFEST).read_text())), 70)

    def test_lines_and_declarations_are_the_same(self):
        self.assertEqual(self.found(lines=LINES[:LINES.index("\n") + 1]),
                         ["tt_rank() is an operator of tutti/functional.h without a line"])
        self.assertEqual(self.found(header=""),
                         [f"{n} has a line, but tutti/functional.h declares no tt_{n}()" for n in ("blur", "rank")])

    def test_each_has_its_cases(self):
        self.assertEqual(self.found(parity="tt_rank(in[0])"), [
            "tt_blur() is nowhere called in tests/parity/parity_*.h, so nothing compares it with PyTorch"])
        self.assertEqual(self.found(cases="tt_blur(in[0])"), [
            "tt_rank() is nowhere called in tests/unit/autograd/op_cases*.h, so nothing checks its gradients"])
        self.assertEqual(self.found(lines=LINES.replace("OPERATOR(b", "UNARY(b"), parity="tt_rank(x)", cases=CASES), [])

    def test_each_kernel_is_in_the_tables(self):
        self.assertEqual(list(operators.of_kernels(LISTS, "{.blur = b, .rank = r}", {}, "here")), [])
        self.assertEqual(list(operators.of_kernels(LISTS, "k->rank = r;", {}, "here")),
                         ["the kernel blur is in no table of here"])
        self.assertEqual(list(operators.of_kernels(LISTS, "k->rank = r;", {"blur": "optional"}, "here")), [])


if __name__ == "__main__":
    unittest.main()
