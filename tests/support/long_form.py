"""What the long form of a test does besides (tests/forms.cmake)."""
import os

LONG = os.environ.get("TT_LONG", "0") not in ("", "0")


def gate(few, every):
    """`few` cases gate a change; the long form, and whoever writes docs/parity.md, takes every one."""
    return every if LONG or os.environ.get("TT_PARITY") else few
