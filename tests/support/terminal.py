"""Programs on a terminal of their own."""
import os
import pty
import struct
import termios
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


def on_terminal(argv, columns, env):
    """What the command writes to a terminal of that width."""
    pid, fd = pty.fork()
    if pid == 0:
        ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(argv[0], argv, env)
    seen = read_rest(fd)
    os.waitpid(pid, 0)
    return seen.decode().replace("\r\n", "\n")
