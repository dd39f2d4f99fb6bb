"""What pip calls (PEP 517): scikit-build-core, before which is checked that everything is there, and an archive of
sources that also has those of libtutti-comm, which lie outside of this folder."""
import contextlib
import pathlib
import shutil

import needs
from scikit_build_core import build as inner

HERE = pathlib.Path(__file__).resolve().parents[1]
BUNDLE = HERE / "tutti"  # in an archive of sources: what the build takes of the source tree
LAYERS = ("base", "net", "store", "spawn", "comm", "elastic", "reducer", "rpc")


def get_requires_for_build_wheel(config_settings=None):
    needs.check(tools_too=False)  # pip fetches those next
    return inner.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    needs.check(tools_too=False)
    return inner.get_requires_for_build_editable(config_settings)


def get_requires_for_build_sdist(config_settings=None):
    return inner.get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    needs.check()
    return inner.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    needs.check()
    return inner.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    needs.check()
    return inner.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    needs.check()
    return inner.build_editable(wheel_directory, config_settings, metadata_directory)


@contextlib.contextmanager
def bundled_sources():
    """Within it, the sources of libtutti-comm lie in this folder."""
    source = HERE.parents[1]
    if (HERE / "PKG-INFO").exists():  # this is an archive of sources itself
        yield
        return
    shutil.rmtree(BUNDLE, ignore_errors=True)  # of a build that was killed
    try:
        for name in ("cmake", "include", *(f"src/{layer}" for layer in LAYERS)):
            shutil.copytree(source / name, BUNDLE / name)
        for name in ("CMakeLists.txt", "LICENSE"):
            shutil.copy(source / name, BUNDLE / name)
        yield
    finally:
        shutil.rmtree(BUNDLE, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):
    with bundled_sources():
        return inner.build_sdist(sdist_directory, config_settings)
