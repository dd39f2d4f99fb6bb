"""NumPy's files, both ways: what numpy.save(), savez() and savez_compressed() write is read and written by Tutti, and
numpy.load() finds the same elements."""
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing} (./dev setup --interop installs it)")
    sys.exit(77)

COPY = os.path.join(os.environ["TT_PROGRAMS"], "npy_copy")
# What becomes of a type: itself, but for unsigned integers.
TYPES = {"?": "?", "i1": "i1", "i2": "i2", "i4": "i4", "i8": "i8", "u1": "u1", "u2": "i4", "u4": "i8", "u8": "i8",
         "f2": "f2", "f4": "f4", "f8": "f8"}


def draw(dice, code):
    shape = [dice.randrange(0 if dice.random() < 0.1 else 1, 6) for _ in range(dice.randrange(0, 6))]
    bits = np.random.default_rng(dice.randrange(1 << 30)).integers(0, 256, (*shape, np.dtype(code).itemsize), "u1")
    array = bits % 2 if code == "?" else bits
    if code == "u8":
        array[..., -1] &= np.uint8(0x7f)
    array = np.ascontiguousarray(array).view(code).reshape(shape)
    order = dice.choice("<>")
    return np.array(array.astype(np.dtype(code).newbyteorder(order)), order=dice.choice("CF"))


def same(a, b, code):
    assert b.dtype == np.dtype(TYPES[code]) and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    expected = np.ascontiguousarray(a.astype(a.dtype.newbyteorder("=")).astype(TYPES[code]))
    assert expected.tobytes() == np.ascontiguousarray(b).tobytes(), code


def main():
    dice = random.Random(int(os.environ.get("TT_STORM_SEED", "1")))
    with tempfile.TemporaryDirectory(prefix="tutti-npy-") as folder:
        os.chdir(folder)
        for save in (np.savez, np.savez_compressed):
            codes = [code for code in TYPES for _ in range(20)]
            arrays = {f"{i} {code}": draw(dice, code) for i, code in enumerate(codes)}
            save("from.npz", **arrays)
            subprocess.run([COPY, "from.npz", "to.npz"], check=True)
            with np.load("to.npz") as back:
                assert back.files == list(arrays), back.files
                for name, code in zip(arrays, codes):
                    same(arrays[name], back[name], code)
        for code in TYPES:
            array = draw(dice, code)
            np.save("from.npy", array)
            subprocess.run([COPY, "from.npy", "to.npy"], check=True)
            same(array, np.load("to.npy"), code)
    print(f"{2 * 20 * len(TYPES)} arrays in archives and {len(TYPES)} alone are NumPy's, bit for bit")


if __name__ == "__main__":
    main()
