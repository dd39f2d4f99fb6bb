"""Writes numpy-files.json: .npy and .npz files as NumPy writes them, and what is in each. usage: make_numpy_files.py"""
import io
import json
import pathlib

import numpy as np

TYPES = {"?": "bool", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "i32", "u4": "i64",
         "u8": "i64", "f2": "f16", "f4": "f32", "f8": "f64"}


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue().hex()


def case(name, array, type_name, **more):
    values = [float(v) if array.dtype.kind == "f" else int(v) for v in array.ravel(order="C")]
    return dict(name=name, file=saved(array), dtype=type_name, shape=list(array.shape), values=values, **more)


def arrays():
    for code, ours in TYPES.items():
        kind = np.dtype(code).kind
        low = -3 if kind in "if" else 0
        numbers = (np.arange(6) % 2 if kind == "b" else np.arange(low, low + 6)).astype(code).reshape(2, 3)
        if kind in "iu" and np.dtype(code).itemsize < 8:
            numbers[0, 0], numbers[1, 2] = np.iinfo(code).min, np.iinfo(code).max
        for order in "<>" if np.dtype(code).itemsize > 1 else "=":
            for fortran in (False, True):
                array = np.array(numbers, dtype=np.dtype(code).newbyteorder(order), order="F" if fortran else "C")
                yield case(f"{order}{code}{' fortran' if fortran else ''}", array, ours)
    yield case("a scalar", np.array(2.5, dtype="f4"), "f32")
    yield case("one dimension", np.arange(5, dtype="i4"), "i32")
    yield case("nothing", np.zeros((0, 3), dtype="f8"), "f64")
    yield case("eight dimensions", np.arange(6, dtype="u1").reshape(1, 2, 1, 3, 1, 1, 1, 1), "u8")


def archive(save):
    file = io.BytesIO()
    save(file, w=np.arange(4, dtype="f4").reshape(2, 2), b=np.zeros(300, dtype="i8"))
    return file.getvalue().hex()


def refused():
    yield "complex", saved(np.zeros(2, dtype="c8"))
    yield "a text", saved(np.array(["abc"]))
    yield "records", saved(np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
    yield "objects", saved(np.array([None, {}], dtype=object))
    yield "a date", saved(np.zeros(2, dtype="M8[s]"))
    yield "nine dimensions", saved(np.zeros((1,) * 9))
    yield "a large uint64", saved(np.array([2 ** 63], dtype="u8"))


def main():
    data = {"arrays": list(arrays()), "stored": archive(np.savez), "deflated": archive(np.savez_compressed),
            "unsupported": dict(refused())}
    with open(pathlib.Path(__file__).with_name("numpy-files.json"), "w") as file:
        json.dump(data, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
