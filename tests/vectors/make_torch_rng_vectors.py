"""Writes torch-rng.json beside itself with torch itself and checks each entry against torch_rng_ref.py.
Run with a torch >= 1.13 python on an AVX2+ machine.  Floats are IEEE-754 bit patterns in hex (big-endian text)."""
import hashlib, json, os, struct, sys
import numpy as np, torch
here = os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0, here)
import torch_rng_ref as R
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
torch.set_num_threads(1)
out = {"note": "hex strings are IEEE-754 bit patterns (8 digits = float32, 16 = float64); sha256 is over little-endian "
               "row-major bytes; caps=avx2/avx512", "cases": []}


def hx(a):
    a = np.asarray(a).reshape(-1)
    if a.dtype == np.float32: return ["%08x" % struct.unpack("<I", struct.pack("<f", v)) for v in a]
    if a.dtype == np.float64: return ["%016x" % struct.unpack("<Q", struct.pack("<d", v)) for v in a]
    return [int(v) for v in a]


def case(name, seed, t, ref, head=16):
    t = t.detach().numpy() if isinstance(t, torch.Tensor) else np.asarray(t, dtype=np.int64)
    ref = np.asarray(ref).astype(t.dtype).reshape(t.shape)
    assert t.tobytes() == ref.tobytes(), name
    c = {"name": name, "seed": seed, "n": int(t.size), "first": hx(t)[:head]}
    if t.size > head: c.update(last=hx(t)[-4:], sha256=hashlib.sha256(t.tobytes()).hexdigest())
    out["cases"].append(c)


for seed in (0, 42, 4294967301):
    T = lambda: torch.manual_seed(seed)
    g = lambda: R.Generator(seed)
    ge = g()
    out["cases"].append({"name": "mt19937 raw 32-bit", "seed": seed, "n": 1000,
                         "first": [ge.random() for _ in range(1000)][:8], "last": [ge.random() for _ in range(1)],
                         "last_is_index": 1000})
    T(); case("rand f32 (1000)", seed, torch.rand(1000), g().uniform_f32(1000))
    T(); case("rand f64 (100)", seed, torch.rand(100, dtype=torch.float64), g().uniform_f64(100))
    T()
    case("uniform_(-0.037,0.21) f32 (100)", seed, torch.empty(100).uniform_(-.037, .21),
         g().uniform_f32(100, -.037, .21))
    T(); case("randn f32 (7)", seed, torch.randn(7), g().normal(7))
    T(); case("randn f32 (16)", seed, torch.randn(16), g().normal(16))
    T(); case("randn f32 (20)", seed, torch.randn(20), g().normal(20), 20)
    T(); case("randn f32 (20,10)", seed, torch.randn(20, 10), g().normal(200))
    T(); case("normal_(0.3,1.7) f32 (35)", seed, torch.empty(35).normal_(.3, 1.7), g().normal(35, .3, 1.7))
    T(); case("randn f64 (20)", seed, torch.randn(20, dtype=torch.float64), g().normal(20, dtype=np.float64))
    T(); case("randint(0,10) (100)", seed, torch.randint(0, 10, (100,)), g().randint(0, 10, 100))
    T(); case("randint(0,2**33) (8)", seed, torch.randint(0, 1 << 33, (8,)), g().randint(0, 1 << 33, 8))
    T()
    case("random_() int64", seed, torch.empty(2, dtype=torch.int64).random_(),
         (lambda q: [q.random_i64(), q.random_i64()])(g()))
    T(); case("randperm(10)", seed, torch.randperm(10), g().randperm(10))
    T(); case("randperm(60000)", seed, torch.randperm(60000), g().randperm(60000))
    T(); case("bernoulli_(0.3) f32 (100)", seed, torch.empty(100).bernoulli_(.3), g().bernoulli(100, .3))
    T()
    case("dropout(ones(100), 0.3)", seed, torch.nn.functional.dropout(torch.ones(100), .3),
         g().dropout(np.ones(100, np.float32), .3))
    T()
    l = torch.nn.Linear(10, 10)
    w, b = g().linear(10, 10)
    case("Linear(10,10).weight", seed, l.weight, w); case("Linear(10,10).bias", seed, l.bias, b)
    T()
    l = torch.nn.Linear(784, 512)
    w, b = g().linear(784, 512)
    case("Linear(784,512).weight", seed, l.weight, w); case("Linear(784,512).bias", seed, l.bias, b)
    T()
    l = torch.nn.Conv2d(3, 8, (3, 5))
    w, b = g().conv2d(3, 8, 3, 5)
    case("Conv2d(3,8,(3,5)).weight", seed, l.weight, w); case("Conv2d(3,8,(3,5)).bias", seed, l.bias, b)
    T(); q = g(); got, ref = [], []
    dl = DataLoader(TensorDataset(torch.arange(23)), batch_size=4, shuffle=True)
    for _ in range(2):
        got += torch.cat([x[0] for x in dl]).tolist(); q.random_i64(); ref += R.Generator(q.random_i64()).randperm(23)
    case("DataLoader(23 items, shuffle=True) order, epochs 0 and 1", seed, got, ref, 46)
ds = []
for n, w, drop, sh, ep in ((10, 3, False, True, 0), (10, 3, True, True, 1), (10, 4, False, False, 0),
                           (2, 5, False, False, 0), (10, 4, True, False, 0)):
    parts = []
    for r in range(w):
        s = DistributedSampler(range(n), w, r, sh, seed=9, drop_last=drop); s.set_epoch(ep); parts.append(list(s))
    ds.append({"n": n, "world": w, "drop_last": drop, "shuffle": sh, "seed": 9, "epoch": ep, "per_rank": parts})
out["distributed_sampler"] = ds
json.dump(out, open(os.path.join(here, "torch-rng.json"), "w"), separators=(",", ":"))
print(len(out["cases"]), "cases ok")
