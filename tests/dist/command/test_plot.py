"""tutti plot: curves in the terminal and as pictures, of runs that other programs wrote, and what it says to files that
are torn, damaged or none."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TUTTI = os.environ["TUTTI"]
sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "vectors"))
from make_events import event, record, simple  # noqa: E402

VALUES = {"loss": lambda i: 2.0 / (1 + i), "acc": lambda i: i / 100}


def write_events(folder, steps=100, scale=1.0, extra=b""):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "events.out.tfevents.1600000000.host.1.0")
    with open(path, "wb") as file:
        file.write(record(event(1600000000.0, version=b"brain.Event:2")))
        for i in range(steps):
            for tag, value in VALUES.items():
                file.write(record(event(1600000000.0 + i, i, summary=simple(tag.encode(), scale * value(i)))))
            file.write(record(event(1600000000.0 + i, i, summary=simple(b"epoch", i / 10))))
        file.write(extra)
    return path


def plot(*args, code=0, **environment):
    done = subprocess.run([TUTTI, "plot", *args], capture_output=True, timeout=60,
                          env=dict(os.environ, LC_ALL="C.UTF-8", **environment))
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, f"plot {args}: exit code {done.returncode}\n{out}{err}"
    return out if code == 0 and not err else err if code else (out, err)


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-plot-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, "/")
        os.chdir(folder.name)

    def test_terminal(self):
        write_events("runs/a")
        out = plot("runs/a", "--width=60", "--tags=loss")
        lines = out.rstrip("\n").split("\n")
        self.assertEqual(lines[0].strip(), "loss")
        self.assertTrue(all(len(line) <= 60 for line in lines), out)
        self.assertTrue(re.search("[\u2801-\u28ff]", lines[1]) and "\u2514" in lines[-2] and lines[-1].endswith("step"))
        self.assertRegex(lines[-1], r"\b40\b")
        self.assertNotIn("\033", out)
        ascii_ = plot("runs/a", "--ascii")
        self.assertTrue(ascii_.isascii() and "acc" in ascii_ and "loss" in ascii_ and "*" in ascii_)
        # What rises has its dots further right in each row above.
        rows = [line for line in plot("runs/a", "--ascii", "--tags=acc").split("\n") if "*" in line]
        self.assertEqual([row.index("*") for row in rows], sorted((row.index("*") for row in rows), reverse=True))

    def test_the_locale_decides(self):
        write_events("a")
        done = subprocess.run([TUTTI, "plot", "a"], capture_output=True, check=True, env=dict(os.environ, LC_ALL="C"))
        self.assertTrue(done.stdout.isascii())

    def test_several_runs(self):
        write_events("runs/a")
        write_events("runs/deep/b", scale=2)
        out = plot("runs", "--title", "Two runs")
        self.assertTrue(out.startswith("Two runs\n\n\u2501\u2501 a\n\u2501\u2501 deep/b\n\n"), out)

    def test_pictures(self):
        write_events("runs/a")
        write_events("runs/b<&>", scale=1.5)
        for flags in [[], ["--log-y"], ["--smooth=0.9"], ["--x=time"], ["--x=epoch"], ["--tags=loss"]]:
            plot("runs", "--svg=c.svg", "--title=A <title> & more", *flags)
            root = xml.etree.ElementTree.parse("c.svg").getroot()
            texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
            self.assertTrue({"A <title> & more", "a", "b<&>", "loss"} <= set(texts), texts)
            curves = [line for line in root.iter("{http://www.w3.org/2000/svg}polyline")
                      if len(line.get("points").split()) > 50]
            self.assertGreaterEqual(len(curves), 2)
            self.assertTrue({"#0072b2", "#d55e00"} <= {line.get("stroke") for line in curves})
            for x, y in (point.split(",") for line in curves for point in line.get("points").split()):
                self.assertTrue(0 <= float(x) <= float(root.get("width")))
                self.assertTrue(0 <= float(y) <= float(root.get("height")))
        units = {"step": "step", "time": "seconds", "epoch": "epoch"}
        for x, name in units.items():
            self.assertIn(name, plot("runs", f"--x={x}").split("\n")[-2])

    def test_other_programs_tables(self):
        with open("log.csv", "w") as file:
            file.write("epoch,loss,\"top 1\"\n" + "".join(f"{i},{1 / i},{i}\n" for i in range(1, 9)))
        out = plot("log.csv")
        self.assertTrue("loss" in out and "top 1" in out)
        with open("one.csv", "w") as file:
            file.write("loss\n1\n")
        self.assertEqual(plot("one.csv", "--svg=one.svg"), "")
        self.assertIn("loss", plot("one.csv"))

    def test_what_tensorboard_exports(self):
        with open("export.csv", "w") as file:
            file.write("Wall time,Step,Value\n1700000000.5,0,0.5\n1700000060.5,1,0.3\n")
        self.assertNotIn("Wall time", plot("export.csv"))
        self.assertIn("seconds", plot("export.csv", "--x=time"))

    def test_what_is_left_out_is_told(self):
        write_events("torn", extra=record(b"x" * 20)[:25])
        out, err = plot("torn")
        self.assertIn("loss", out)
        self.assertIn("ends inside a record, whose 25 bytes are left out", err.replace("\n    ", " "))
        path = write_events("damaged")
        with open(path, "r+b") as file:
            file.seek(3000)
            byte = file.read(1)
            file.seek(3000)
            file.write(bytes([byte[0] ^ 1]))
        self.assertIn("is damaged at byte", plot("damaged")[1].replace("\n    ", " "))

    def test_many_series_take_no_time(self):
        columns = [f"s{i}" for i in range(100000, 0, -1)]
        with open("wide.csv", "w") as file:
            file.write("step," + ",".join(columns) + "\n")
            for step in range(2):
                file.write(f"{step}," + ",".join(["1"] * len(columns)) + "\n")
        self.assertIn("s77", plot("wide.csv", "--tags=s77"))

    def test_steps_as_far_apart_as_can_be(self):
        low, high = -2**63, 2**63 - 1
        with open("far.csv", "w") as file:
            file.write(f"step,epoch,loss\n{low},0,\n-3,,2\n5,,1\n{high},1,\n")
        self.assertIn("loss", plot("far.csv", "--x=epoch", "--tags=loss"))

    def test_nothing_from_outside_reaches_the_terminal(self):
        """Neither escape sequences nor controls, also those of U+0080 to U+009F, in names and in files."""
        evil = "\x1b]0;owned\x07\x1b[31m\x9b31m\x9d0;x\x9c"
        write_events("a")
        os.mkdir(evil)
        write_events(evil, extra=record(b"x" * 20)[:25])
        with open(f"{evil}.csv", "w") as file:
            file.write(f"step,{evil}\n1,{evil}\n")
        for argv in ([evil], ["a", evil], ["a", evil, "--title", evil], [f"{evil}.csv"], [f"no{evil}"],
                     ["a", f"--x={evil}"], [f"--{evil}"]):
            done = subprocess.run([TUTTI, "plot", *argv], capture_output=True, timeout=60,
                                  env=dict(os.environ, LC_ALL="C.UTF-8"))
            for text in (done.stdout, done.stderr):
                self.assertFalse([c for c in text.decode() if c != "\n" and (c < " " or "\x7f" <= c < "\xa0")], text)

    def test_mistakes_are_told(self):
        write_events("a")
        os.mkdir("empty")
        with open("text", "w") as file:
            file.write("no table")
        with open("no-times.csv", "w") as file:
            file.write("step,loss\n1,2\n")
        for flags, text in [(["missing"], "can't open missing"),
                            (["empty"], "expected event files"),
                            (["text"], "names of columns"),
                            (["a", "--tags=no*"], "nothing to draw"),
                            (["no-times.csv", "--x=time"], "has no times"),
                            (["no-times.csv", "--x=epoch"], "has no series \"epoch\""),
                            (["a", "--svg=no/such/file"], "no/such/file")]:
            told = plot(*flags, code=1)
            self.assertIn(text, told.replace("\n    ", " "))
        if os.path.exists("/dev/full"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TUTTI, "plot", "a"], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("writing the output failed", done.stderr)

    def test_a_picture_that_cant_be_written_whole_leaves_the_old_one(self):
        write_events("a")
        with open("picture", "w") as old:
            old.write("precious")
        limited = ["bash", "-c", "ulimit -f 1; exec \"$@\"", "bash"]
        done = subprocess.run([*limited, TUTTI, "plot", "a", "--svg", "picture"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("picture: writing failed: the limit on a file's size", done.stderr.replace("\n    ", " "))
        with open("picture") as file:
            self.assertEqual(file.read(), "precious")
        self.assertEqual([name for name in os.listdir() if ".tmp-" in name], [])


if __name__ == "__main__":
    unittest.main()
