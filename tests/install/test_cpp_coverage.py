"""Nobody who writes C++ needs to drop to C: each public function is called by the parts of tutti.hpp, or stands here
with a reason. Each C header has its part."""
import os
import pathlib
import re
import unittest

INCLUDE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2])) / "include" / "tutti"
# Headers without a part: the sum of all; the contract of plug-ins, which are shared objects in C; and what functional.h
# includes, whose part has both.
NO_PART = {"tutti", "backend", "nn_functional"}
# Parts that another part includes: half of its header's.
HALVES = {"rpc_values"}
MAX_LINES = 600

# What has no wrapper, and what a C++ program writes instead.
NOT_WRAPPED = {
    "tt_apply_with": "apply() stands on tt_apply_many(), which gives all outputs",
    "tt_autocast_cleanup": "of a macro that is C's: autocast ends with its block",
    "tt_dataset_from_with": "dataset_from() stands on tt_dataset_new(), which owns its callback",
    "tt_expires_cleanup": "of a macro that is C's: expires ends with its block",
    "tt_expires_scope": "of a macro that is C's: expires ends with its block",
    "tt_no_grad_cleanup": "of a macro that is C's: no_grad and enable_grad end with their block",
    "tt_op_name": "for plug-ins",
    "tt_rpc_arg_bool": "rpc_call::arg<bool>() and typed parameters",
    "tt_rpc_arg_float": "rpc_call::arg<double>() and typed parameters",
    "tt_rpc_arg_int": "rpc_call::arg<int>() and typed parameters",
    "tt_rpc_arg_rref": "rpc_call::arg<rref>() and typed parameters",
    "tt_rpc_arg_tensor": "rpc_call::arg<tensor>() and typed parameters",
    "tt_rpc_arg_text": "rpc_call::arg<std::string>() and typed parameters",
    "tt_batch_sampler_from_with": "batch_sampler_from() stands on tt_batch_sampler_new(), which owns its callback",
    "tt_sampler_from_with": "sampler_from() stands on tt_sampler_new(), which owns its callback",
    "tt_scope_cleanup": "of a macro that is C's: a scope ends with its block",
    "tt_tensor_f32": "data<float>() checks the type",
    "tt_tensor_i64": "data<std::int64_t>() checks the type",
}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def public_functions(text):
    return set(re.findall(r"^\s*(?:TT_EXTERN )?TT_API\b[^;{]*?\b(tt_\w+)\s*\(", without_comments(text), flags=re.M))


def used_names(text):
    return set(re.findall(r"\btt_\w+", without_comments(text)))


def findings(declared, used, listed):
    for name in sorted(declared - used - listed.keys()):
        yield f"{name}() has no wrapper in tutti/cpp and no reason for that"
    for name in sorted(listed.keys() - declared):
        yield f"{name}() is listed, but no header declares it"
    for name in sorted(listed.keys() & used):
        yield f"{name}() is listed, but it has a wrapper"


class Coverage(unittest.TestCase):
    def test_a_function_without_wrapper_is_found(self):
        header = ("/* TT_API int tt_old(void); */\nTT_API TT_NODISCARD tt_status tt_new_with(\n"
                  "    const tt_new_args *a);\nTT_API const char *tt_name(int x);\n")
        self.assertEqual(public_functions(header), {"tt_new_with", "tt_name"})
        part = "/* tt_new_with() */ inline const char *name(int x) { return tt_name(x); }"
        self.assertEqual(list(findings(public_functions(header), used_names(part), {})),
                         ["tt_new_with() has no wrapper in tutti/cpp and no reason for that"])
        self.assertEqual(list(findings({"tt_name", "tt_new_with"}, used_names(part),
                                       {"tt_name": "", "tt_gone": "", "tt_new_with": ""})),
                         ["tt_gone() is listed, but no header declares it",
                          "tt_name() is listed, but it has a wrapper"])

    def test_each_public_function_has_a_wrapper(self):
        declared = set().union(*(public_functions(path.read_text()) for path in INCLUDE.glob("*.h")))
        used = set().union(*(used_names(path.read_text()) for path in INCLUDE.glob("cpp/*.hpp")))
        self.assertGreater(len(declared), 200)
        self.assertEqual(list(findings(declared, used, NOT_WRAPPED)), [])

    def test_the_parts_are_those_of_the_c_headers(self):
        parts = {path.stem for path in INCLUDE.glob("cpp/*.hpp")} - HALVES
        self.assertEqual(parts, {path.stem for path in INCLUDE.glob("*.h")} - NO_PART)
        whole = (INCLUDE / "tutti.hpp").read_text()
        for part in sorted(parts):
            self.assertIn(f"#include <tutti/cpp/{part}.hpp>\n", whole)
            text = (INCLUDE / "cpp" / f"{part}.hpp").read_text()
            self.assertIn(f"#include <tutti/{part}.h>\n", text)
            self.assertLessEqual(text.count("\n"), MAX_LINES)


if __name__ == "__main__":
    unittest.main()
