"""Writes gpt2-bpe.json: a small vocabulary in GPT-2's two files, trained here, texts of all kinds, and their tokens by
the published algorithm in plain Python. Where tiktoken is installed it must come to the same.
usage: make_gpt2_bpe.py   (needs the module regex)"""
import collections
import json
import pathlib
import random

import regex

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
MERGES = 150
CORPUS = """The quick brown fox jumps over the lazy dog. She'll say that they're late, and we've seen it: I'm sure he'd
go there, isn't it? In 2024 the rain in Spain stays mainly in the plain; 1234567890 times.\n\n  def main(argc, argv):
        return argc + len(argv)\n\tDie Straße ist naß, der Bär läuft über die Brücke. Où est la bibliothèque? Привет,
мир! 你好，世界。 こんにちは世界 😀😀 👩‍👩‍👧 🇫🇷 naïve café résumé  aaaa aaaaaaaa banana bananas anananas\n""" * 3


def alphabet():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {**{byte: chr(byte) for byte in own}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


LETTER = alphabet()


def letters(word):
    return tuple(LETTER[byte] for byte in word.encode())


def merged(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def train(text):
    words = collections.Counter(letters(word) for word in regex.findall(PATTERN, text))
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = collections.Counter({merged(word, best): count for word, count in words.items()})
    return merges


def encode(text, vocab, ranks):
    ids = []
    for word in regex.findall(PATTERN, text):
        word = letters(word)
        while len(word) > 1:
            pair = min(zip(word, word[1:]), key=lambda pair: ranks.get(pair, float("inf")))
            if pair not in ranks:
                break
            word = merged(word, pair)
        ids += [vocab[token] for token in word]
    return ids


def texts():
    yield from ("", " ", "  ", "\n", " \n x", "a", " a", "  a", "a  ", "a \n\n  b", "\t\tx",
                "don't DON'T I'll he'd we'veX",
                "'s's ''s 's", "x'", "12ab34 ²½Ⅷ ٣", "a\u00a0b\u2003c\u3000d", "é e\u0301",
                "😀 👩‍👩‍👧🇫🇷!", "<|endoftext|>", "a" * 100, "aaaa bananas" * 20, "\x00\x01\x7f\x85\x1c", "ʼn ªº ǅ ㊀ 〇",
                CORPUS[:400])
    dice = random.Random(7)
    pieces = list("abnaN'  \n\t.,19é语😀\u00a0\u0301ß") + ["'s", "'ll", " the", "banana", "\r\n", "   "]
    for _ in range(60):
        yield "".join(dice.choice(pieces) for _ in range(dice.randrange(1, 40)))
    for _ in range(40):
        yield "".join(chr(dice.choice([dice.randrange(0xd800), dice.randrange(0xe000, 0x30000), dice.randrange(0x500)]))
                      for _ in range(dice.randrange(1, 20)))


def check_with_tiktoken(vocab, cases):
    try:
        import tiktoken
    except ImportError:
        return
    byte_of = {letter: byte for byte, letter in LETTER.items()}
    ranks = {bytes(byte_of[c] for c in token): i for token, i in vocab.items()}
    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    for case in cases:
        assert encoding.encode_ordinary(case["text"]) == case["tokens"], case


def main():
    merges = train(CORPUS)
    vocab = {}
    for token in [*(LETTER[byte] for byte in range(256)), *("".join(pair) for pair in merges)]:
        vocab.setdefault(token, len(vocab))
    ranks = {pair: i for i, pair in enumerate(merges)}
    cases = [dict(text=text, tokens=encode(text, vocab, ranks)) for text in texts()]
    check_with_tiktoken(vocab, cases)
    words = [dict(text=text, words=[len(w.encode()) for w in regex.findall(PATTERN, text)]) for text in texts()]
    data = dict(vocab=json.dumps(vocab), merges="#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges),
                cases=cases, words=[w["words"] for w in words])
    with open(pathlib.Path(__file__).with_name("gpt2-bpe.json"), "w") as file:
        json.dump(data, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
