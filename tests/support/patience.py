"""Time and ports in tests: what patience.h is for the scripts. A busy machine or a sanitizer may hold any process up
for seconds."""
import os
import random
import socket

# Seconds for what must come: only a bug makes it take longer.
DEADLINE = 0.4 * float(os.environ["TT_TIMEOUT"])

# Promises of how quick something is are held to on a quiet machine alone.
STRICT = os.environ.get("TT_STRICT_TIMES", "0") not in ("", "0")


def free_port():
    """Below the ports that the system gives to whoever asks for any, which may be taken again at once."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
