"""tools/wrappers.py makes the C++ of include/tutti/cpp, and refuses what C and its templates don't agree about."""
import importlib.util
import os
import pathlib
import shutil
import unittest

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
spec = importlib.util.spec_from_file_location("wrappers", SOURCE / "tools" / "wrappers.py")
wrappers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wrappers)


class Declared(wrappers.Headers):
    """Headers of one operator with options."""

    def __init__(self):
        self.structs = {"tt_blur_args": {"x": "tt_tensor *", "sigma": "double", "no_pad": "bool", "size": "int64_t"}}
        self.functions = {"tt_blur_with": ("tt_tensor *", [("const tt_blur_args *", "args"), ("size_t", "size")]),
                          "tt_mix": ("tt_tensor *", [("tt_tensor *", "a"), ("double", "by")]),
                          "tt_mix_": ("tt_tensor *", [("tt_tensor *", "a"), ("double", "by")])}
        self.of_header = {"blur": list(self.functions)}


def part(text):
    made = wrappers.Part.__new__(wrappers.Part)
    made.headers, made.name, made.options, made.namespace = Declared(), "blur", {}, ""
    made.text = made.with_structs(text)
    return made


STRUCT = "@struct blur_options of tt_blur_args: pad=true size=3;\n"


class Wrappers(unittest.TestCase):
    @unittest.skipUnless(shutil.which("clang-format"), "there is no clang-format")
    def test_the_headers_are_as_they_would_be_made(self):
        self.assertEqual(list(wrappers.findings()), [])

    def test_options_have_the_types_of_c(self):
        self.assertIn("struct blur_options {\n    bool pad = true;\n    std::int64_t size = 3;\n};", part(STRUCT).text)

    def test_a_call_fills_the_args(self):
        made = part(STRUCT).function("tensor blur(const tensor &x, double s = 1, const blur_options &o = {}) s: sigma")
        self.assertIn("tt_blur_args a = TT_BLUR_ARGS_INIT;", made)
        self.assertIn("a.x = x.get(), a.sigma = s, a.no_pad = !o.pad, a.size = o.size;", made)
        self.assertIn("return tensor(detail::call(tt_blur_with, a));", made)

    def test_an_option_that_c_has_alone_is_refused(self):
        with self.assertRaisesRegex(wrappers.Mistake, r"blur\(\): nothing gives a value to sigma of tt_blur_args"):
            part(STRUCT).function("tensor blur(const tensor &x, const blur_options &o = {})")
        self.assertIn("tt_blur_with", part(STRUCT).function(
            "tensor blur(const tensor &x, const blur_options &o = {}) -sigma"))

    def test_an_option_that_c_lacks_is_refused(self):
        with self.assertRaisesRegex(wrappers.Mistake, "no option radius"):
            part("@struct blur_options of tt_blur_args: radius;\n")
        with self.assertRaisesRegex(wrappers.Mistake, "no header declares tt_sharpen"):
            part("").function("tensor sharpen(const tensor &x)")

    def test_plain_functions_need_no_words(self):
        made = part("").rest()
        self.assertIn("inline tensor mix(const tensor &a, double by) {\n    return tensor(tt_mix(a.get(), by));", made)
        self.assertIn("inline tensor &mix_(tensor &a, double by) {\n    return check(tt_mix_(a.get(), by)), a;", made)
        self.assertNotIn("tt_mix(", part("inline tensor mix(const tensor &a) { return tt_mix(a.get(), 1); }").rest())


if __name__ == "__main__":
    unittest.main()
