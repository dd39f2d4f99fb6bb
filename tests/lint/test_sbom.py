"""tools/sbom.py names what a build is linked with: compared with what objdump and dpkg say."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["TT_SOURCE"])
BUILD = pathlib.Path(os.environ["TT_BUILD"])
# Which programs load when they first need them.
LATE = ["libdnnl", "libhwloc", "libgomp", "libzip", "libjpeg", "libpng16", "libcurl"]
PLUGINS = ["gloo", "mpich", "openmpi"]
# What no package here has is called by the library's name: NVIDIA's, and what Debian would have, but isn't installed.
ABSENT = re.compile(r"lib[^ ]+\.so\.[0-9]+")


def run(*argv, **env):
    env = dict(os.environ, LC_ALL="C", **env)
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout


class Sbom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = run(sys.executable, SOURCE / "tools" / "sbom.py", BUILD, SOURCE_DATE_EPOCH="1600000000")
        cls.document = json.loads(cls.text)
        cls.packages = {package["name"]: package for package in cls.document["packages"]}

    def test_the_same_build_gives_the_same_text(self):
        again = run(sys.executable, SOURCE / "tools" / "sbom.py", BUILD, SOURCE_DATE_EPOCH="1600000000")
        self.assertEqual(again, self.text)

    def test_it_is_spdx(self):
        """The rules of SPDX 2.3 for what is used of it."""
        self.assertEqual((self.document["spdxVersion"], self.document["dataLicense"], self.document["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        self.assertRegex(self.document["documentNamespace"], r"^https://[^#]+$")
        self.assertEqual(self.document["creationInfo"]["created"], "2020-09-13T12:26:40Z")
        for creator in self.document["creationInfo"]["creators"]:
            self.assertRegex(creator, r"^Tool: \S+-\S+$")
        ids = [package["SPDXID"] for package in self.document["packages"]]
        self.assertEqual(len(set(ids)), len(ids))
        for package in self.document["packages"]:
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertTrue(package["name"] and package["versionInfo"] and package["downloadLocation"])
            self.assertIs(package["filesAnalyzed"], False)
            for reference in package.get("externalRefs", []):
                self.assertRegex(reference["referenceLocator"], r"^pkg:deb/[a-z]+/[\w%.~-]+@[\w%.~-]+[?]arch=")
        for relation in self.document["relationships"]:
            for end in ("spdxElementId", "relatedSpdxElement"):
                self.assertIn(relation[end], [*ids, "SPDXRef-DOCUMENT"])
        related = {end for relation in self.document["relationships"] for end in relation.values()}
        self.assertLessEqual(set(ids), related)

    def test_all_that_is_linked_is_in_it(self):
        sonames = {name for package in self.packages.values()
                   for name in package.get("comment", "").split(": ")[0].split(", ")}
        for path in [BUILD / "bin" / "tutti", *(BUILD / "lib").rglob("*.so")]:
            found = set(re.findall(r"^ +NEEDED +(\S+)$", run("objdump", "-p", path), flags=re.M))
            self.assertTrue(found)
            self.assertLessEqual({name for name in found if not name.startswith("libtutti")}, sonames, path)
        for late in LATE:
            self.assertTrue([name for name in sonames if name.startswith(late + ".so.")], late)
        for plugin in PLUGINS:
            if list((BUILD / "lib").rglob(f"*backend*{plugin}.so")):
                self.assertTrue([name for name in self.packages if plugin in name], plugin)

    @unittest.skipUnless(shutil.which("dpkg-query"), "not a Debian system")
    def test_versions_are_dpkgs(self):
        self.assertGreater(len([name for name in self.packages if not ABSENT.fullmatch(name)]), 8)
        for name, package in self.packages.items():
            if ABSENT.fullmatch(name):
                self.assertEqual(package["versionInfo"], "NOASSERTION")
            elif name != "tutti":
                self.assertEqual(package["versionInfo"], run("dpkg-query", "-W", "-f", "${Version}", name))

    def test_it_tells_from_what(self):
        relation = {(r["spdxElementId"], r["relatedSpdxElement"]): r["relationshipType"]
                    for r in self.document["relationships"]}
        by_library = {name: package["SPDXID"] for package in self.packages.values()
                      for name in package.get("comment", "").split(": ")[0].split(", ")}
        tutti = self.packages["tutti"]["SPDXID"]
        self.assertEqual(relation["SPDXRef-DOCUMENT", tutti], "DESCRIBES")
        self.assertEqual(relation[tutti, by_library["libuv.so.1"]], "DYNAMIC_LINK")
        late = [name for name in by_library if name.startswith("libdnnl.so")][0]
        self.assertEqual(relation[by_library[late], tutti], "RUNTIME_DEPENDENCY_OF")

    def test_no_build_is_an_error(self):
        done = subprocess.run([sys.executable, SOURCE / "tools" / "sbom.py", SOURCE / "docs"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a build", done.stderr)


if __name__ == "__main__":
    unittest.main()
