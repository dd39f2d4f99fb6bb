"""A munged of a test's own, with a key and a socket in a folder of the test's."""
import os
import shutil
import subprocess
import time

from patience import DEADLINE

NEEDED = ("munged", "munge", "unmunge")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def missing():
    """What of MUNGE is not installed here: programs' names."""
    return [name for name in NEEDED if not shutil.which(name, path=PATH)]


def write_key(path):
    key = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(key, os.urandom(128))
    os.close(key)


def argv(folder, key, socket):
    """What starts it in the foreground. Its socket's folder must be one that all may reach."""
    files = {"--key-file": key, "--socket": socket}
    files.update({f"--{kind}-file": os.path.join(folder, f"{os.path.basename(socket)}.{kind}")
                  for kind in ("pid", "log", "seed")})
    return ["munged", "--foreground", "--force", *(f"{k}={v}" for k, v in files.items())]


class Munged:
    def __init__(self, folder):
        os.chmod(folder, 0o711)
        self.socket = os.path.join(folder, "munge.socket")
        key = os.path.join(folder, "munge.key")
        write_key(key)
        self.daemon = subprocess.Popen(argv(folder, key, self.socket), env=dict(os.environ, PATH=PATH),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + DEADLINE
        while not os.path.exists(self.socket):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                self.daemon.kill()
                raise RuntimeError(f"munged does not start: {self.daemon.communicate()[1].decode()}")
            time.sleep(0.02)

    def end(self):
        self.daemon.terminate()
        self.daemon.communicate()

    def seal(self, text, user=None):
        """A credential of this text."""
        done = subprocess.run(["munge", f"--socket={self.socket}", f"--string={text}"], capture_output=True,
                              text=True, check=True, user=user)
        return done.stdout.strip()

    def open(self, credential, user=None):
        """What it holds; or why munged refuses it, and nothing."""
        done = subprocess.run(["unmunge", f"--socket={self.socket}", "--keys=STATUS"], input=credential,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, user=user)
        return done.stdout
