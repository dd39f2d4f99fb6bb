"""Writes torch-attention.json beside itself: modules of attention, as make_torch_modules.py writes others."""
import torch
from torch import nn

from make_torch_modules import case, values, write

def attention_cases():
    padding = torch.tensor([[False, False, True, False, True], [False] * 4 + [True]])
    causal = torch.ones(5, 5).triu(1).bool()
    added = values((4, 5, 5), 31, torch.float32)
    yield case("attention", lambda: nn.MultiheadAttention(8, 2), [(5, 2, 8)],
               lambda m, x: m(x, x, x, need_weights=False)[0])
    yield case("attention cross f64", lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True),
               [(2, 3, 8), (2, 4, 6), (2, 4, 5)], dtype=torch.float64)
    yield case("attention apart", lambda: nn.MultiheadAttention(8, 4), [(3, 2, 8), (4, 2, 8), (4, 2, 8)])
    yield case("attention masks", lambda: nn.MultiheadAttention(8, 2, batch_first=True, bias=False),
               [(2, 5, 8), padding, causal], lambda m, x, p, c: m(x, x, x, key_padding_mask=p, attn_mask=c)[0])
    yield case("attention masks of heads", lambda: nn.MultiheadAttention(8, 2), [(5, 2, 8), padding, added],
               lambda m, x, p, a: m(x, x, x, key_padding_mask=p, attn_mask=a))
    yield case("attention unbatched", lambda: nn.MultiheadAttention(8, 2), [(5, 8), causal],
               lambda m, x, c: m(x, x, x, attn_mask=c))
    layer = nn.TransformerEncoderLayer
    yield case("encoder layer", lambda: layer(8, 2, 12, 0), [(5, 2, 8)])
    yield case("encoder layer norm_first", lambda: layer(8, 2, 12, 0, "gelu", 1e-3, True, True), [(2, 5, 8)])
    yield case("encoder layer masks", lambda: layer(8, 2, 12, 0, batch_first=True), [(2, 5, 8), causal, padding])
    yield case("encoder f64", lambda: nn.TransformerEncoder(layer(8, 2, 12, 0), 2, nn.LayerNorm(8)), [(5, 2, 8)],
               dtype=torch.float64)
    yield case("encoder masks", lambda: nn.TransformerEncoder(layer(8, 2, 12, 0, norm_first=True), 2),
               [(5, 2, 8), causal, padding])


if __name__ == "__main__":
    write("torch-attention.json", attention_cases())
