"""Programs on a terminal of their own."""
import os
import pty
import select
import struct
import termios
import time
from fcntl import ioctl


def read_rest(fd):
    """What is written to a terminal until nobody has it open any more; then it is closed here, too."""
    seen = b""
    try:
        while chunk := os.read(fd, 65536):
            seen += chunk
    except OSError:
        pass
    os.close(fd)
    return seen


def read_until(fd, what, seconds):
    """What is written to a terminal until `what` has come."""
    seen, end = b"", time.monotonic() + seconds
    while what not in seen:
        if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(f"{what} did not come: {seen}")
        seen += os.read(fd, 65536)
    return seen


def on_terminal(argv, columns, env):
    """What the command writes to a terminal of that width."""
    pid, fd = pty.fork()
    if pid == 0:
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(argv[0], argv, env)
    seen = read_rest(fd)
    os.waitpid(pid, 0)
    return seen.decode().replace("\r\n", "\n")
