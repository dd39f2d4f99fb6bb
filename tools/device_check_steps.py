"""Training steps of `tutti bench step` beside PyTorch's, in turn, on the first GPU: rows of tools/device_check.sh's
report. PyTorch runs the same model eagerly and, where it can, by torch.compile; without PyTorch ours run alone.

usage: device_check_steps.py TUTTI mlp|conv|gpt2|resnet50 [--fake]

The MLP's step is captured as a graph, as small kernels take the host longer than the GPU. --fake: ours is the MLP
whatever is asked for, and PyTorch's are small and on the cpu; rows say so.
"""
import json
import statistics
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    torch, nn = None, None

PAIRS = 3
STEPS = {"mlp": 400, "conv": 50, "gpt2": 3, "resnet50": 3}  # of a block; ours have five blocks
IN_BF16 = ("gpt2", "resnet50")
AS_GRAPH = ("mlp",)
tutti, name = sys.argv[1:3]
FAKE = "--fake" in sys.argv


def our_step():
    model = "mlp" if FAKE else name
    flags = ["--amp", "bf16"] if name in IN_BF16 and not FAKE else []
    flags += ["--graph"] if name in AS_GRAPH else []
    done = subprocess.run([tutti, "bench", "step", "--world", "1", "--device", "cuda:0", "--model", model, "--steps",
                           "1" if FAKE else str(STEPS[name]), *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tutti bench step: {done.stderr.strip()}")
    return json.loads(done.stdout)


def text_of(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def row(what, ours, eager, compiled, ours_mb=None, torch_mb=None):
    ratios = [None if other is None else other / ours for other in (eager, compiled)]
    model = f"mlp for {name}" if FAKE and name != "mlp" else name
    model += ", a graph" if name in AS_GRAPH else ""
    cells = [model, what, text_of(ours, 3), text_of(eager, 3), text_of(compiled, 3), *map(text_of, ratios),
             text_of(ours_mb, 0), text_of(torch_mb, 0)]
    print("| " + " | ".join(cells) + " |", flush=True)


# ---- PyTorch's side


if torch:
    DEVICE = torch.device("cpu" if FAKE else "cuda:0")

    class Conv(nn.Module):
        """PyTorch's MNIST example."""

        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

        def forward(self, x):
            x = F.relu(self.conv2(F.relu(self.conv1(x))))
            x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                       for t in self.c_attn(self.ln_1(x)).split(C, 2))
            if hasattr(F, "scaled_dot_product_attention"):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = F.softmax(q @ k.transpose(-2, -1), -1) @ v  # an old PyTorch, which is only tried
            x = x + self.attn_proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self, words, tokens, width, layers, heads):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(tokens, width)
            self.h = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
            self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, x):
            return self.lm_head(self.ln_f(self.h(self.wte(x) + self.wpe.weight[:x.shape[1]])))

    class Bottleneck(nn.Module):
        def __init__(self, into, width, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.downsample = nn.Sequential() if into == 4 * width and stride == 1 else nn.Sequential(
                nn.Conv2d(into, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
            return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))

    def resnet50(depths=(3, 4, 6, 3)):
        layers, into = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for stage, depth in enumerate(depths):
            for i in range(depth):
                layers.append(Bottleneck(into, 64 << stage, 2 if stage and not i else 1))
                into = 256 << stage
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))

    def logits_loss(y, target): return F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))

    def make():
        """Model, batch, targets, loss, optimizer."""
        if name == "mlp":
            model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
            return (model, torch.randn(32, 1, 28, 28), torch.randint(10, (32,)), logits_loss,
                    lambda p: torch.optim.SGD(p, lr=1e-3))
        if name == "conv":
            return (Conv(), torch.randn(64, 1, 28, 28), torch.randint(10, (64,)), F.nll_loss,
                    lambda p: torch.optim.Adadelta(p, lr=1.0))
        if name == "gpt2":
            words, tokens, *sizes = (65, 8, 16, 1, 2) if FAKE else (50257, 1024, 768, 12, 12)
            x = torch.randint(words, (2 if FAKE else 16, tokens))
            return GPT2(words, tokens, *sizes), x, x, logits_loss, lambda p: torch.optim.AdamW(p, lr=3e-4)
        rows, side = (2, 32) if FAKE else (64, 224)
        x = torch.randn(rows, 3, side, side).to(memory_format=torch.channels_last)
        model = resnet50((1, 1, 1, 1) if FAKE else (3, 4, 6, 3)).to(memory_format=torch.channels_last)
        return (model, x, torch.randint(1000, (rows,)), logits_loss,
                lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))

    def synchronize():
        if not FAKE:
            torch.cuda.synchronize()

    class Peer:
        def __init__(self, compiled):
            torch.manual_seed(0)
            model, x, y, self.loss, optimizer = make()
            self.model, self.x, self.y = model.to(DEVICE), x.to(DEVICE), y.to(DEVICE)
            self.optimizer = optimizer(self.model.parameters())
            if compiled:
                self.model = torch.compile(self.model)

        def step(self):
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=name in IN_BF16):
                loss = self.loss(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()

        def block(self, count):
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                self.step()
            synchronize()
            return (time.perf_counter() - start) * 1000 / count

        def time(self):
            """The median of five blocks, as ours is."""
            return statistics.median(self.block(1 if FAKE else STEPS[name]) for _ in range(5))


def peers():
    """PyTorch's two, warm, and its memory; None where there is none."""
    if not torch or not (FAKE or torch.cuda.is_available()):
        return None, None, None
    eager = Peer(compiled=False)
    eager.block(3)
    megabytes = None if FAKE else torch.cuda.max_memory_allocated() / (1 << 20)
    try:
        start = time.perf_counter()
        compiled = Peer(compiled=True)
        compiled.block(3)
        print(f"compiling took {time.perf_counter() - start:.1f} s")
    except Exception as error:  # of whichever kind: it lacks a compiler, say
        print("torch.compile:", error)
        compiled = None
    return eager, compiled, megabytes


def main():
    eager, compiled, torch_mb = peers()
    found = []
    for pair in range(PAIRS):
        ours = our_step()
        found.append((ours["ms_median"], eager and eager.time(), compiled and compiled.time()))
        row(str(pair + 1), *found[-1])
    medians = [None if None in column else statistics.median(column) for column in zip(*found)]
    row("median", *medians, ours["device_mb"], torch_mb)


main()
