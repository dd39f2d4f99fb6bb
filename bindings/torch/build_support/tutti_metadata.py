"""What pyproject.toml leaves open: Tutti's version, which CMakeLists.txt has, and the PyTorch that is built for."""
import os
import pathlib
import re

import needs

HERE = pathlib.Path(__file__).resolve().parents[1]


def version():
    bundle = HERE / "tutti" / "CMakeLists.txt"
    text = (bundle if bundle.exists() else HERE.parents[1] / "CMakeLists.txt").read_text()
    return re.search(r"project\(tutti VERSION ([0-9.]+)", text).group(1)


def dependencies():
    if os.environ.get("TUTTI_TORCH_SDIST"):
        return ["torch"]
    major, minor = needs.installed_torch()[0].split(".")[:2]
    return [f"torch=={major}.{minor}.*"]


def dynamic_metadata(field, settings=None, project=None):
    return {"version": version, "dependencies": dependencies}[field]()


def dynamic_wheel(field, settings=None):
    """Which fields an archive of sources leaves open."""
    return field == "dependencies"
