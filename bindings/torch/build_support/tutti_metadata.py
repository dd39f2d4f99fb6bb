"""What pyproject.toml leaves open: Tutti's version, which CMakeLists.txt has, and the PyTorch that is built for."""
import pathlib
import re

import needs

HERE = pathlib.Path(__file__).resolve().parents[1]


def version():
    bundle = HERE / "tutti" / "CMakeLists.txt"
    text = (bundle if bundle.exists() else HERE.parents[1] / "CMakeLists.txt").read_text()
    return re.search(r"project\(tutti VERSION ([0-9.]+)", text).group(1)


def dependencies():
    major, minor = needs.installed_torch()[0].split(".")[:2]
    return [f"torch=={major}.{minor}.*"]


class Metadata:
    """A provider of dynamic metadata, as scikit-build-core calls it. An archive of sources is for any PyTorch."""

    def build_state(self, state):
        self.sources = state == "sdist"

    def dynamic_metadata(self, settings, project):
        return {"version": version(), "dependencies": ["torch"] if self.sources else dependencies()}

    def dynamic_wheel(self, settings):
        return {"dependencies": True}
