"""GPT-2 from files that lie as Hugging Face's libraries write them, made here by PyTorch: its logits and its greedy
text are those of the same numbers in PyTorch. Skipped (77) without torch."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "vectors"))
import make_torch_gpt as gpt  # noqa: E402

PROGRAM = os.path.join(os.environ["TT_PROGRAMS"], "gpt2_logits")
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": gpt.V, "n_positions": gpt.P,
          "n_ctx": gpt.P, "n_embd": gpt.C, "n_layer": gpt.L, "n_head": gpt.H, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
          "initializer_range": 0.02, "summary_type": "cls_index", "bos_token_id": 50256}
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.uint8: "U8"}
TEXT, MORE = [7, 30, 2, 64, 11], 11


def random_state(seed):
    """Numbers as a trained model has them; norms near 1."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * (0.2 if len(shape) == 2 else 0.05) +
            ("ln_" in name and name.endswith("weight")) for name, shape in gpt.gpt2_shapes()}


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in tensors.items():
        part = bytes(x.contiguous().view(torch.uint8).numpy().tobytes()) if x.dim() else x.reshape(1).numpy().tobytes()
        header[name] = {"dtype": TYPES[x.dtype], "shape": list(x.shape), "data_offsets": [len(data),
                                                                                         len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def published(state):
    """As "gpt2" lies on the hub: without the head and the prefix, with masks."""
    found = {name.removeprefix("transformer."): x for name, x in state.items()}
    for i in range(gpt.L):
        found[f"h.{i}.attn.bias"] = torch.ones(1, 1, gpt.P, gpt.P).tril()
        found[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    return found


def run(folder):
    done = subprocess.run([PROGRAM, folder, str(MORE), *map(str, TEXT)], stdout=subprocess.PIPE, check=True, text=True)
    numbers = done.stdout.split()
    return torch.tensor([float(x) for x in numbers[:gpt.V]]), [int(x) for x in numbers[gpt.V:]]


def expected(state, gelu):
    """Logits behind the text, and what it goes on with, in f64."""
    state = {name: x.double() for name, x in state.items()}
    ids, first = torch.tensor([TEXT]), None
    for _ in range(MORE):
        logits = gpt.gpt2(state, ids, gelu)[0, -1]
        first = logits if first is None else first
        ids = torch.cat([ids, logits.argmax().reshape(1, 1)], 1)
    return first, ids[0, len(TEXT):].tolist()


def check(what, tensors, state, config=None):
    """`state`: the numbers that `tensors` hold."""
    config = {**CONFIG, **(config or {})}
    with tempfile.TemporaryDirectory(prefix="tutti-gpt2-") as folder:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file, indent=2)
        logits, text = run(folder)
    want, want_text = expected(state, "none" if config["activation_function"] == "gelu" else "tanh")
    distance = (logits - want).abs().max().item() / want.abs().max().item()
    print(f"{what}: logits differ by {distance:.2g} of the largest, text {text}")
    return distance < 1e-5 and text == want_text


def main():
    state = random_state(1)
    half = {name: x.to(torch.bfloat16) for name, x in state.items()}
    float16 = {name: x.half() for name, x in state.items()}
    saved = {**state, "lm_head.weight": state["transformer.wte.weight"]}
    good = [check("published", published(state), state), check("saved with its head", saved, state),
            check("bf16", published(half), half), check("f16", published(float16), float16),
            check("gelu by erf", published(state), state, {"activation_function": "gelu"})]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
