"""PyTorch's .pt files, both ways: what torch.save() writes is read and written by Tutti, torch.load() reads that, with
weights_only=True where this PyTorch can, and every bit is what it was."""
import collections
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (./dev setup --interop installs it)")
    sys.exit(77)

COPY, RESUME = (os.path.join(os.environ["TT_PROGRAMS"], name) for name in ("pt_copy", "pt_resume"))
TUTTI = os.environ["TUTTI"]
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool]


def copy(value, protocol=2):
    torch.save(value, "from.pt", pickle_protocol=protocol)
    subprocess.run([COPY, "from.pt", "to.pt"], check=True)
    return torch.load("to.pt")


def bits(tensor):
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def same(a, b, where="value"):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and not b.requires_grad, where
        if a.dtype == torch.bool:
            assert torch.equal(a, b), where
        else:
            assert bits(a) == bits(b), where
    elif isinstance(a, dict):
        assert isinstance(b, dict) and list(a) == list(b), (where, a, b)
        for key in a:
            same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert type(b) is (list if isinstance(a, list) else tuple) and len(a) == len(b), (where, a, b)
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
    else:
        assert type(a) is type(b) and (a == b or a != a), (where, a, b)


def close(a, b, where):
    """Trees of numbers that differ by rounding only."""
    if isinstance(b, dict):
        assert a.keys() == b.keys(), (where, a, b)
        for key in b:
            close(a[key], b[key], f"{where}[{key!r}]")
    else:
        assert torch.allclose(torch.as_tensor(a), torch.as_tensor(b, dtype=torch.float32), rtol=1e-5, atol=1e-6), where


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.full((4, 3), 0.5 + step)), torch.ones(4, 2)).backward()
        optimizer.step()


def tensors(dtype):
    """One type in every layout there is."""
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    if dtype.is_floating_point:
        x[0, 0, :3] = torch.tensor([float("nan"), float("-inf"), -0.0]).to(dtype)
    image = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(dtype).contiguous(memory_format=torch.channels_last)
    return {"plain": x, "scalar": x[1, 2, 3], "empty": x[:, :0], "row": x[1], "turned": x.transpose(0, 2),
            "steps": x[:, :, ::2], "expanded": x[:, :1].expand(2, 5, 4), "last": image, "one": x[:1, :1, :1]}


def states(make):
    """A model and its optimizer after two steps."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
                                torch.nn.Linear(144, 3))
    optimizer = make(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 1, 8, 8)).square().sum().backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "loss": 0.1, "note": "é\n€"}


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for dtype in TYPES:
        same(tensors(dtype), copy(tensors(dtype)), str(dtype))

    # whole training states, by every pickle protocol that has an end of its own
    for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1),
                 lambda p: torch.optim.AdamW(p, lr=1e-3), torch.optim.Adadelta, torch.optim.Adagrad,
                 torch.optim.RMSprop):
        state = states(make)
        for protocol in (2, 3, 4, 5):
            same(state, copy(state, protocol))
    scheduler = torch.optim.lr_scheduler.MultiStepLR(torch.optim.SGD([torch.ones(1)], lr=1), [2, 5])
    state = scheduler.state_dict()
    same({**state, "milestones": dict(state["milestones"])}, copy(state))

    # everything else that a value can be
    odd = {"none": None, "flags": [True, False],
           "numbers": [0, 255, 256, 65535, 65536, -1, 2**31 - 1, -2**31, 2**31, 2**63 - 1, -2**63, 0.5, float("inf")],
           "nested": [[], {}, (), [1], (2,), (3, 4), (5, 6, 7), (1, 2, 3, 4), {"": {}}], 3: "three", -3: "minus",
           "types": TYPES, "long": "x" * 70000}
    same(odd, copy(odd))
    shared = [1, 2]
    same({"a": shared, "b": shared, "c": (shared, shared)}, copy({"a": shared, "b": shared, "c": (shared, shared)}))
    same({"size": (2, 3), "parameter": torch.ones(2), "ordered": {"b": 1, "a": 2}, "device": "cpu"},
         copy({"size": torch.Size((2, 3)), "parameter": torch.nn.Parameter(torch.ones(2)),
               "ordered": collections.OrderedDict(b=1, a=2), "device": torch.device("cpu")}))
    same(torch.ones(3), copy(torch.ones(3)))
    same([f"t{i}" for i in range(400)], copy([f"t{i}" for i in range(400)]))  # memo numbers above 255

    # tied weights stay tied
    w = torch.randn(4, 5)
    back = copy({"in": w, "out": w})
    same({"in": w, "out": w}, back)
    assert back["in"].data_ptr() == back["out"].data_ptr()

    # what has no floats goes through the restricted reader of every PyTorch; a module takes it strictly
    model = torch.nn.Linear(3, 2)
    copy(model.state_dict())
    restricted = torch.load("to.pt", weights_only=True)
    same(dict(model.state_dict()), dict(restricted))
    torch.nn.Linear(3, 2).load_state_dict(restricted)

    # a run of PyTorch's goes on here for three steps, and there again for two
    for name, make in (("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
                       ("adamw", lambda p: torch.optim.AdamW(p, lr=0.1)),
                       ("adam", lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, betas=(0.8, 0.999))),
                       ("rmsprop", lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5)),
                       ("adagrad", lambda p: torch.optim.Adagrad(p, lr=0.1)),
                       ("adadelta", lambda p: torch.optim.Adadelta(p, lr=1.0))):
        model = torch.nn.Linear(3, 2)
        optimizer = make(model.parameters())
        train(model, optimizer, (7, 8))
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "run.pt")
        train(model, optimizer, (0, 1, 2))
        subprocess.run([RESUME, "run.pt", "went_on.pt", name], check=True)
        ours = torch.load("went_on.pt")
        close(ours["model"], model.state_dict(), name)
        close(ours["optimizer"]["state"], optimizer.state_dict()["state"], name)
        groups = optimizer.state_dict()["param_groups"][0]
        for key, value in ours["optimizer"]["param_groups"][0].items():
            assert value == groups[key] and type(value) in (float, type(groups[key])), (name, key, value, groups[key])
        again = torch.nn.Linear(3, 2)
        again.load_state_dict(ours["model"])
        resumed = make(again.parameters())
        resumed.load_state_dict(ours["optimizer"])
        train(model, optimizer, (3, 4))
        train(again, resumed, (3, 4))
        close(again.state_dict(), model.state_dict(), name)

    # by the command: to safetensors and back, through several files
    model = states(torch.optim.Adadelta)["model"]
    torch.save(model, "model.pt")
    for source, target in (("model.pt", "many.safetensors.index.json"), ("many.safetensors.index.json", "back.pt")):
        subprocess.run([TUTTI, "ckpt", "convert", source, target], check=True)
    same(dict(sorted(model.items())), dict(torch.load("back.pt")))

    # refused by name
    for value, text in (({"w": torch.ones(2, dtype=torch.complex64)}, '"w": tensors of torch.complex64'),
                        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"), ({1, 2}, "builtin"),
                        ({"w": torch.ones(2).to_sparse()}, "sparse"), ({(1, 2): 3}, "keys of a dict"),
                        ([2**64], "an int of 9 bytes"), ({"b": b"x"}, "_codecs.encode"),
                        ({"w": torch.ones([1] * 9)}, "9 dimensions")):
        torch.save(value, "from.pt")
        failed = subprocess.run([COPY, "from.pt", "to.pt"], stderr=subprocess.PIPE, text=True)
        assert failed.returncode == 1 and text in failed.stderr, (text, failed.stderr)
    torch.save({"w": torch.ones(2)}, "from.pt", _use_new_zipfile_serialization=False)
    failed = subprocess.run([COPY, "from.pt", "to.pt"], stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 1 and "before PyTorch 1.6" in failed.stderr, failed.stderr
    os.chdir("/")
