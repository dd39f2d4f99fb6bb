"""What is asked of the installed PyTorch when the package is built: version;C++ ABI;folders of headers;libraries. The
latter two are lists with "|" between. Imports torch, as it alone knows."""
import glob
import os
import sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # a package of ours for another PyTorch may be installed
try:
    import torch
except ImportError as missing:
    if not sys.flags.ignore_environment:  # pip hides what is installed from what it builds, by the environment
        os.execv(sys.executable, [sys.executable, "-E", os.path.abspath(__file__)])
    sys.exit(f"{sys.executable} can't import torch: {missing}. Install PyTorch first; where it is there, and a tool "
             "builds in an environment of its own, tell it to use this one (uv: --no-build-isolation; build: "
             "--no-isolation)")

package = os.path.dirname(torch.__file__)
headers = os.path.join(package, "include")
if not os.path.exists(os.path.join(headers, "torch", "csrc")):
    headers = "/usr/include"  # Debian keeps them there: libtorch-dev
if not os.path.exists(os.path.join(headers, "torch", "csrc", "distributed", "c10d", "Work.hpp")):
    sys.exit(f"torch {torch.__version__} is in {package}, but its headers are not there, nor in /usr/include "
             "(Debian: libtorch-dev)")


def library(name):
    for folder in (os.path.join(package, "lib"), *glob.glob("/usr/lib/*-linux-gnu")):
        found = os.path.join(folder, f"lib{name}.so")
        if os.path.exists(found):
            return found
    sys.exit(f"torch {torch.__version__} is in {package}, but its lib{name}.so was not found")


print(torch.__version__.split("+")[0].split("a")[0], int(torch._C._GLIBCXX_USE_CXX11_ABI),
      "|".join([headers, os.path.join(headers, "torch", "csrc", "api", "include")]),
      "|".join(map(library, ("torch_cpu", "c10", "torch_python"))), sep=";")
