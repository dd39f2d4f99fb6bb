"""DistributedSampler, RandomSampler and SubsetRandomSampler under a DataLoader,
uniform_, normal_ and Normalize: the same indices and bits as the installed torch."""
import os
import random
import struct
import subprocess
import sys

try:
    import torch
    from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler
    from torch.utils.data.distributed import DistributedSampler
except ImportError as error:
    print("skipped: torch is not installed (%s)" % error)
    sys.exit(77)

capability = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: None)()
if capability == "DEFAULT" or os.environ.get("ATEN_CPU_CAPABILITY") == "default":
    print("skipped: this torch computes without AVX2, which gives other last bits")
    sys.exit(77)

torch.set_num_threads(1)
choose = random.Random(0)


def bits(tensor):
    """Elements in the order of memory, as the program prints them."""
    kind = torch.int32 if tensor.dtype == torch.float32 else torch.int64
    mask = 0xFFFFFFFF if kind == torch.int32 else 0xFFFFFFFFFFFFFFFF
    return ["%x" % (v & mask) for v in tensor.reshape(-1).view(kind).tolist()]


def sampler_case():
    n, world = choose.choice([1, 2, 3, 7, 10, 64, 100, 1001]), choose.randint(1, 9)
    rank, seed, epoch = choose.randrange(world), choose.choice([0, 1, 42, 2**32 + 5]), choose.choice([0, 1, 2, 100])
    shuffle, drop_last = choose.randint(0, 1), choose.randint(0, 1)
    sampler = DistributedSampler(range(n), world, rank, bool(shuffle), seed=seed, drop_last=bool(drop_last))
    sampler.set_epoch(epoch)
    # torch asserts that it visits as many as it announced; with fewer examples than ranks and drop_last that is none
    return "sampler %d %d %d %d %d %d %d" % (n, world, rank, seed, epoch, shuffle, drop_last), [str(i) for i in sampler]


def loader_case():
    """Examples, epochs, seed, and whether the seed is that of a generator of the program's own."""
    return choose.choice([1, 2, 7, 23, 100]), choose.randint(1, 3), choose.randrange(2**40), choose.randint(0, 1)


def visits(loader, epochs):
    return [str(i) for _ in range(epochs) for batch in loader for i in batch.tolist()]


def shuffled_case():
    n, epochs, seed, own = loader_case()
    samples, replacement = choose.choice([0, 0, n, 2 * n, 3, 40, 2 * n + 1]), choose.randint(0, 1)
    if not samples and replacement:
        samples = n
    generator = torch.Generator().manual_seed(seed) if own else None
    torch.manual_seed(seed)
    sampler = RandomSampler(range(n), bool(replacement), samples or None, generator)
    loader = DataLoader(range(n), 4, sampler=sampler, generator=generator)
    return "shuffled %d %d %d %d %d %d" % (n, epochs, seed, own, samples, replacement), visits(loader, epochs)


def subset_case():
    n, epochs, seed, own = loader_case()
    generator = torch.Generator().manual_seed(seed) if own else None
    torch.manual_seed(seed)
    loader = DataLoader(range(n), 4, sampler=SubsetRandomSampler(range(0, n, 3), generator))
    return "subset %d %d %d %d" % (n, epochs, seed, own), visits(loader, epochs)


def tensor_case():
    layout, dtype = choose.choice(["contiguous", "transposed", "narrowed"]), choose.choice(["f32", "f64"])
    distribution, seed = choose.choice(["uniform", "normal"]), choose.randrange(2**40)
    a, b = sorted([choose.uniform(-2, 2), choose.uniform(-2, 2)])
    if distribution == "normal":
        b = abs(b)
    rows, columns = choose.choice([1, 2, 3, 5, 16]), choose.choice([3, 4, 8, 15, 16, 33])
    whole = torch.zeros(rows, columns, dtype=torch.float32 if dtype == "f32" else torch.float64)
    x = {"contiguous": whole, "transposed": whole.t(), "narrowed": whole[:, 1:-1]}[layout]
    torch.manual_seed(seed)
    x.uniform_(a, b) if distribution == "uniform" else x.normal_(a, b)
    return "%s %s %s %r %r %d %d %d" % (layout, dtype, distribution, a, b, rows, columns, seed), bits(whole)


def is_close(line, want, got):
    """torch 1.13 takes log(1 - u) where 2.x takes log1p(-u), as Tutti does, in normals drawn one by one: f64 shows it,
    in the last bit."""
    words = line.split()
    serial = words[0] in ("transposed", "narrowed") or (words[0] == "contiguous" and int(words[5]) * int(words[6]) < 16)
    if not (serial and words[1:3] == ["f64", "normal"] and torch.__version__.startswith("1.")):
        return False
    values = [[struct.unpack("<d", struct.pack("<Q", int(v, 16)))[0] for v in bits] for bits in (want, got)]
    return len(want) == len(got) and all(abs(a - b) <= 1e-14 for a, b in zip(*values))


def normalize_case(mean, std):
    x = torch.arange(256, dtype=torch.uint8).to(torch.float32).div(255)  # ToTensor
    x = x.sub(torch.as_tensor(mean)).div(torch.as_tensor(std))  # Normalize
    return "normalize %r %r" % (mean, std), bits(x)


cases = [sampler_case() for _ in range(600)] + [tensor_case() for _ in range(600)]
cases += [shuffled_case() for _ in range(200)] + [subset_case() for _ in range(100)]
cases += [normalize_case(0.0, 1.0), normalize_case(0.1307, 0.3081), normalize_case(0.5, 0.5),
          normalize_case(0.2860, 0.3530)]

program = os.path.join(os.environ["TT_PROGRAMS"], "draw")
output = subprocess.run([program], input="".join(line + "\n" for line, _ in cases), stdout=subprocess.PIPE, text=True,
                        check=True)
lines = output.stdout.split("\n")[:-1]
assert len(lines) == len(cases), "%d lines for %d questions" % (len(lines), len(cases))
for (line, want), output_line in zip(cases, lines):
    got = output_line.split()
    if got != want and not is_close(line, want, got):
        differing = [(i, w, g) for i, (w, g) in enumerate(zip(want, got)) if w != g]
        print("%s: expected %d values, got %d; (number, torch's, Tutti's): %s" %
              (line, len(want), len(got), differing[:5]))
        sys.exit(1)
print("torch %s: %d cases alike" % (torch.__version__, len(cases)))
