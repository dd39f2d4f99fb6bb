#!/usr/bin/env python3
"""Write the corpus of fuzz_frames: conversations that reach every kind of frame. Usage: make_frames_corpus.py FOLDER"""
import os
import struct
import sys

EAGER, ANNOUNCE, READY, DATA, REFUSE, CREDIT, BEAT, NEWS, ASK, ANSWER, GOODBYE = range(1, 12)


def frame(kind, group=1, seq=0, step=0, word=1, id=0, other=0, size=0, flags=0, credit=0, record=0, body=b""):
    return struct.pack("<HBBIIIIIIIIIQ", 0x5474, kind, flags, credit, group, seq, step, word, record, id, other, 0,
                       size) + body


CONVERSATIONS = {
    "eager": frame(EAGER, size=4, body=b"abcd") + frame(EAGER, step=9, size=0) +
            frame(EAGER, step=1, seq=2, size=4, body=b"wxyz"),
    "announce": frame(ANNOUNCE, id=7, size=70000) + frame(DATA, other=1, size=4096, body=bytes(4096)),
    "ready": frame(READY, seq=3, step=1, id=5, size=4) + frame(READY, id=6, other=2, size=4),
    "early": frame(READY, step=0, id=5, size=65537) + frame(READY, step=0, id=6, size=65537) + frame(REFUSE, id=5) +
            frame(READY, group=2, id=7, size=70000),
    "refuse": frame(REFUSE, id=4, other=3, flags=1) + frame(REFUSE, id=4, other=4, flags=2) +
            frame(REFUSE, id=9, flags=3),
    "notes": frame(BEAT, size=56, body=bytes(56)) + frame(NEWS, size=20, body=bytes(20)) + frame(ASK, id=3) +
            frame(ASK, id=4, record=9) + frame(ANSWER, id=3, size=3, flags=1, body=b"abc"),
    "credit": frame(CREDIT, credit=64) + frame(GOODBYE) + frame(CREDIT, credit=1 << 30),
    "data": frame(DATA, other=1, size=4, body=b"abcd") +
            b"".join(frame(DATA, other=i, size=4, body=b"abcd") for i in range(1, 10)),
    "large": frame(EAGER, size=70000) + bytes(100),
    "words": frame(EAGER, seq=2, step=5, word=2, size=4, body=b"abcd") +
            frame(READY, seq=3, step=7, word=9, id=1, size=8),
}

if __name__ == "__main__":
    for name, talk in CONVERSATIONS.items():
        for first in (0, 1, 128):
            with open(os.path.join(sys.argv[1], "%s-%d" % (name, first)), "wb") as f:
                f.write(bytes([first]) + talk)
