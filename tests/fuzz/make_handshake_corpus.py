"""Writes the seeds of fuzz_handshake into corpus/handshake: make_handshake_corpus.py (see fuzz_handshake.c for the form
of an input)."""
import os

SERVER, SECRET, SPOILED = 1, 2, 4
HEADER = b"\xf5\x01"


def introduction(kind, proves, purpose=2, rank=0, peer=1):
    ranks = rank.to_bytes(4, "little") + peer.to_bytes(4, "little")
    return HEADER + bytes([kind, 0, purpose, proves, 0, 0]) + ranks + b"the job's number" + bytes(range(32))


seeds = {
    "hello": bytes([SERVER]) + introduction(1, 0),
    "hello_proves": bytes([SERVER | SECRET]) + introduction(1, 1) + HEADER + b"\x03\0" + bytes(32),
    "hello_store": bytes([SERVER | SECRET]) + introduction(1, 1, purpose=1),
    "hello_of_another": bytes([SERVER]) + introduction(1, 0, rank=7),
    "challenge": bytes([0x38]) + introduction(2, 0, rank=1, peer=0),
    "challenge_proves": bytes([SECRET]) + introduction(2, 1, rank=1, peer=0) + HEADER + b"\x04\0" + bytes(32),
    "challenge_to_any": bytes([0]) + introduction(2, 0, rank=1, peer=0xFFFFFFFF),
    "challenge_out_of_turn": bytes([SECRET | 0x38]) + introduction(2, 1, rank=1, peer=0),
    "refusal": bytes([SECRET]) + HEADER + b"\x05\x05",
    "refusal_unknown": bytes([SECRET]) + HEADER + b"\x05\xff",
    "version": bytes([SERVER]) + b"\xf5\x02",
    "http": bytes([SERVER]) + b"GET / HTTP/1.1\r\n\r\n",
    "true_client": bytes([SPOILED | SERVER | SECRET | 0x38]),
    "true_server": bytes([SPOILED | SECRET]),
    "true_without_secret": bytes([SPOILED]),
    "spoiled_hello": bytes([SPOILED | SERVER | SECRET, 40, 1]),
    "spoiled_proof": bytes([SPOILED | SERVER | SECRET | 0x38, 64 + 10, 0x80]),
    "spoiled_accept": bytes([SPOILED | SECRET | 0x38, 64 + 35, 1]),
}

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "handshake")
os.makedirs(folder, exist_ok=True)
for name, seed in seeds.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(seed)
