"""A tiny GPT-2 as one is published: config.json, model.safetensors, vocab.json, merges.txt; of random weights."""
import json
import os
import random
import struct

WORDS, POSITIONS, WIDTH, LAYERS, HEADS = 260, 24, 16, 2, 2
MERGES = [("t", "h"), ("th", "e"), ("o", "u")]


def byte_characters():
    """The printable character that stands for each byte in GPT-2's vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def shapes():
    sizes = {"transformer.wte.weight": [WORDS, WIDTH], "transformer.wpe.weight": [POSITIONS, WIDTH]}
    for layer in range(LAYERS):
        h = f"transformer.h.{layer}."
        for name, inner, outer in [("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                   ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)]:
            sizes[f"{h}{name}.weight"], sizes[f"{h}{name}.bias"] = [inner, outer], [outer]
        for name in ["ln_1", "ln_2"]:
            sizes[f"{h}{name}.weight"] = sizes[f"{h}{name}.bias"] = [WIDTH]
    sizes["transformer.ln_f.weight"] = sizes["transformer.ln_f.bias"] = [WIDTH]
    return sizes


def write_weights(path):
    header, data, draw = {}, b"", random.Random(1)
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [draw.gauss(0, 0.1) if len(shape) == 2 else float(".ln_" in name and name.endswith("weight"))
                  for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_header(path):
    """Names and shapes of the tensors in a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def write_model(folder, dropout=0.0):
    os.makedirs(folder)
    config = {"model_type": "gpt2", "vocab_size": WORDS, "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": LAYERS,
              "n_head": HEADS, "embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout}
    tokens = [*byte_characters().values(), *("".join(pair) for pair in MERGES), "<|endoftext|>"]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump({token: number for number, token in enumerate(tokens)}, file)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in MERGES))
    write_weights(os.path.join(folder, "model.safetensors"))
