"""Language models as PyTorch makes them: a small GPT from seed 0 (names, shapes and bits of the state), GPT-2 with
weights of a formula, by functions alone; logits and gradients of both in f64, and GPT-2's greedy text.
usage: make_torch_gpt.py OUT.json   (torch >= 1.13; tests/unit/models/test_gpt.c makes the same)"""
import json, sys, zlib
import torch, torch.nn as nn, torch.nn.functional as F

V, P, C, L, H = 65, 16, 32, 2, 4


def value(shape, k=0):
    """What tests/unit/models/test_gpt.c calls gpt_value()."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return ((i * 37 + k * 53 + 19) % 211).double().sub(105).div(105).reshape(shape)


def tokens(b, t): return (torch.arange(b * t) * 17 % V).reshape(b, t)


def causal_attention(q, k, v):
    """(B,T,C) each -> (B,T,C)"""
    B, T, _ = q.shape
    q, k, v = (x.view(B, T, H, C // H).transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) * (C // H) ** -0.5
    hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    y = F.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v
    return y.transpose(1, 2).reshape(B, T, C)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.o = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.f, self.g = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        x = x + self.o(causal_attention(*self.qkv(self.l1(x)).split(C, 2)))
        return x + self.g(F.gelu(self.f(self.l2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(V, C), nn.Embedding(P, C)
        self.b = nn.Sequential(*[Block() for _ in range(L)])
        self.l, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)

    def forward(self, ids): return self.head(self.l(self.b(self.e(ids) + self.p.weight[:ids.shape[1]])))


def gpt2_shapes():
    """In the order of the model's parameters."""
    yield from {"transformer.wte.weight": (V, C), "transformer.wpe.weight": (P, C)}.items()
    for i in range(L):
        for name, shape in (("ln_1", (C,)), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", (C,)),
                            ("mlp.c_fc", (C, 4 * C)), ("mlp.c_proj", (4 * C, C))):
            yield f"transformer.h.{i}.{name}.weight", shape
            yield f"transformer.h.{i}.{name}.bias", shape[-1:]
    yield from {"transformer.ln_f.weight": (C,), "transformer.ln_f.bias": (C,)}.items()


def gpt2_state():
    """Small numbers, larger ones for positions; norms near 1."""
    return {name: value(shape, k) * (3 if "wpe" in name else 0.3) + ("ln_" in name and name.endswith("weight"))
            for k, (name, shape) in enumerate(gpt2_shapes())}


def gpt2(state, ids, gelu="tanh"):
    def norm(x, name): return F.layer_norm(x, (C,), state[name + ".weight"], state[name + ".bias"], 1e-5)
    def conv1d(x, name): return x @ state[name + ".weight"] + state[name + ".bias"]

    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][:ids.shape[1]]
    for i in range(L):
        block = f"transformer.h.{i}."
        y = conv1d(norm(x, block + "ln_1"), block + "attn.c_attn")
        x = x + conv1d(causal_attention(*y.split(C, 2)), block + "attn.c_proj")
        y = F.gelu(conv1d(norm(x, block + "ln_2"), block + "mlp.c_fc"), approximate=gelu)
        x = x + conv1d(y, block + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ state["transformer.wte.weight"].T


def numbers(t): return [float("%.17g" % v) for v in t.detach().flatten().tolist()]


def describe(logits, parameters):
    (logits * value(logits.shape)).sum().backward()
    return {"logits": numbers(logits[:, -1]), "grad_norms": [p.grad.norm().item() for p in parameters]}


def describe_gpt():
    torch.manual_seed(0)
    model = GPT()
    state = [[name, list(x.shape), zlib.crc32(x.contiguous().numpy().tobytes())]
             for name, x in model.state_dict().items()]
    model = model.double()
    return {"state": state, **describe(model(tokens(2, 11)), list(model.parameters()))}


def describe_gpt2():
    state = {name: x.requires_grad_() for name, x in gpt2_state().items()}
    found = {"names": list(state), **describe(gpt2(state, tokens(2, 11)), list(state.values()))}
    found["exact_gelu_logits"] = numbers(gpt2(state, tokens(2, 11), "none")[:, -1])
    ids = tokens(1, 4)
    while ids.shape[1] < P:
        ids = torch.cat([ids, gpt2(state, ids)[:, -1].argmax(1, keepdim=True)], 1)
    return {**found, "text": ids[0, 4:].tolist()}


def main(path):
    with open(path, "w") as file:
        json.dump({"gpt": describe_gpt(), "gpt2": describe_gpt2()}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
