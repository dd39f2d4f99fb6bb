"""Writes corpus/pt: the examples of tests/vectors, and pickles by hand, sound and hostile. No torch needed."""
import pathlib
import pickle
import struct

HERE = pathlib.Path(__file__).parent
TO = HERE / "corpus" / "pt"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


def number(value):
    return b"K" + bytes([value])


def numbers(values):
    return b"(" + b"".join(number(v) for v in values) + b"t"


def tensor(kind=b"ByteStorage", key=b"0", count=32, offset=0, sizes=(2, 3), strides=(3, 1)):
    storage = (b"(" + text(b"storage") + b"ctorch\n" + kind + b"\n" + text(key) + text(b"cpu") + number(count) + b"tQ")
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(sizes) + numbers(strides) +
            b"\x89ccollections\nOrderedDict\n)RtR")


def of(*pairs):
    return b"\x80\x02}(" + b"".join(text(name) + value for name, value in pairs) + b"u."


def bomb(levels):
    """Lists that hold the one before ten times."""
    lists = b"".join(b"0](" + b"h" + (b"h".join([bytes([i])] * 10)) + b"eq" + bytes([i + 1]) for i in range(levels))
    return b"\x80\x02]q\x00" + lists + b"."


PICKLES = {
    "tensor": of((b"w", tensor())),
    "types": of(*((kind, tensor(kind, count=count, sizes=(2,), strides=(1,))) for kind, count in
                  ((b"ByteStorage", 32),))),
    "floats": of((b"w", tensor(b"FloatStorage", count=8))),
    "bools": of((b"w", tensor(b"BoolStorage"))),
    "expanded": of((b"w", tensor(sizes=(200, 200), strides=(0, 0)))),
    "empty": of((b"w", tensor(offset=40, sizes=(0, 3)))),
    "shared": of((b"a", tensor()), (b"b", tensor(sizes=(3, 2), strides=(1, 3)))),
    "beyond": of((b"w", tensor(offset=30))),
    "complex": of((b"w", tensor(b"ComplexFloatStorage", count=4))),
    "parameter": of((b"w", b"ctorch._utils\n_rebuild_parameter\n(" + tensor() +
                     b"\x88ccollections\nOrderedDict\n)RtR")),
    "metadata": of((b"w", tensor()))[:-1] + b"}" + text(b"_metadata") + b"}sb.",
    "size": b"\x80\x02ctorch\nSize\n" + numbers((2, 3)) + b"\x85R.",
    "dtype": b"\x80\x02ctorch\nfloat32\n.",
    "counter": b"\x80\x02ccollections\nCounter\n}K\x01K\x02s\x85R.",
    "code": b"\x80\x02cos\nsystem\n" + text(b"true") + b"\x85R.",
    "itself": b"\x80\x02]q\x00h\x00a.",
    "deep": b"\x80\x02" + b"]" * 500 + b"a" * 499 + b".",
    "bomb": bomb(20),
    "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "long": b"\x80\x02\x8b\xff\xff\xff\x7f.",
}
STATE = {"state": {0: {"step": 3, "exp_avg": None}},
         "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
         "history": [1, -2, 70000, 2**40, -2**63, True, None, "é"], "nested": [[], (), {}, (1,), (1, 2), (1, 2, 3, 4)]}

TO.mkdir(parents=True, exist_ok=True)
for name, content in PICKLES.items():
    (TO / name).write_bytes(content)
for protocol in (2, 3, 4, 5):
    (TO / f"state-{protocol}").write_bytes(pickle.dumps(STATE, protocol))
for example in (HERE.parent / "vectors").glob("*.pt"):
    (TO / example.stem).write_bytes(example.read_bytes())
