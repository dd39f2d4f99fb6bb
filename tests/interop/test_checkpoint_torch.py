"""Checkpoints and PyTorch. What Tutti writes is read here by an independent reader (struct and numpy) and goes into a
torch module; what torch's values make, written by an independent writer as PyTorch's DDP names them, is resumed from by
Tutti, to the same bits."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (./dev setup --interop installs it)")
    sys.exit(77)

TRAINER = os.path.join(os.environ["TT_BUILD"], "examples", "mnist_trainer")
TYPES = {"F32": numpy.float32, "F64": numpy.float64, "I32": numpy.int32, "I64": numpy.int64, "U8": numpy.uint8}


def train(*flags):
    subprocess.run([os.environ["TUTTI"], "run", "--standalone", "--nproc-per-node=2", TRAINER, "--data", "small",
                    "--lr", "0.02", "--momentum", "0.9", *flags], check=True, stdout=subprocess.DEVNULL,
                   timeout=0.9 * float(os.environ["TT_TIMEOUT"]))


def read(path):
    with open(path, "rb") as f:
        content = f.read()
    length = struct.unpack("<Q", content[:8])[0]
    assert (8 + length) % 8 == 0 and content[8:9] == b"{"
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    metadata, tensors, end = header.pop("__metadata__"), {}, 0
    for name, entry in header.items():  # in the file's order
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{name} does not follow the tensor before it"
        end = stop
        tensors[name] = numpy.frombuffer(data[begin:stop], TYPES[entry["dtype"]]).reshape(entry["shape"])
    assert end == len(data)
    return tensors, metadata


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    names = {numpy.dtype(kind): name for name, kind in TYPES.items()}
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, indent=1).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    subprocess.run([os.environ["TUTTI"], "data", "digits", "small", "--train", "2000", "--test", "100"], check=True,
                   stdout=subprocess.DEVNULL)
    train("--epochs", "1", "--checkpoint", "a")
    tensors, metadata = read("a")
    assert metadata["format"] == "pt" and metadata["tutti.epoch"] == "1"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10))
    of_model = {name: torch.from_numpy(v.copy()) for name, v in tensors.items() if not name.startswith("optimizer.")}
    model.load_state_dict(of_model)  # strict: names and shapes are torch's
    assert len([n for n in tensors if n.startswith("optimizer.state.")]) == 4
    try:
        from safetensors.torch import load_file
        for name, value in load_file("a").items():
            assert torch.equal(value, torch.from_numpy(tensors[name].copy()))
    except ImportError:
        print("the safetensors package is not here: read by this test's own reader only")

    # weights alone: what torch's own load reads goes into the module, strictly
    ckpt = [os.environ["TUTTI"], "ckpt"]
    for target in ("weights.pt", "weights.safetensors"):
        subprocess.run([*ckpt, "convert", "--weights-only", "a", target], check=True)
        if target.endswith(".pt"):
            weights = torch.load(target)
        else:
            weights = {name: torch.from_numpy(v.copy()) for name, v in read(target)[0].items()}
        fresh = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(),
                                    torch.nn.Linear(512, 10))
        fresh.load_state_dict(weights, strict=True)
        for name, value in fresh.state_dict().items():
            assert torch.equal(value, of_model[name]), name
    # and of what torch's programs save: a dict of several, a wrapped module
    adam = torch.optim.Adam(model.parameters())
    for key in ("model", "state_dict", "model_state_dict"):
        wrapped = torch.nn.ModuleDict({"module": model}).state_dict()
        torch.save({"epoch": 3, key: wrapped, "optimizer": adam.state_dict()}, "torch.pt")
        subprocess.run([*ckpt, "convert", "--weights-only", "torch.pt", "of_torch.pt"], check=True)
        fresh.load_state_dict(torch.load("of_torch.pt"), strict=True)
    shown = subprocess.run([*ckpt, "show", "a"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "\nprogress: epoch 1, " in shown, shown
    shown = json.loads(subprocess.run([*ckpt, "show", "a", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    assert shown["progress"]["epoch"] == 1 and str(shown["progress"]["sampler_seed"]) == metadata["tutti.sampler_seed"]

    # the same values, the way torch's DDP names them, in torch's order, then the optimizer's
    wrapped = {"module." + name: value.numpy() for name, value in model.state_dict().items()}
    wrapped.update({name: v for name, v in tensors.items() if name.startswith("optimizer.")})
    write("b", wrapped, metadata)
    train("--epochs", "2", "--resume", "a", "--checkpoint", "from_tutti")
    train("--epochs", "2", "--resume", "b", "--checkpoint", "from_torch")
    with open("from_tutti", "rb") as x, open("from_torch", "rb") as y:
        assert x.read() == y.read(), "training goes on differently from torch's file"
    os.chdir("/")
