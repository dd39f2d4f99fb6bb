"""Real handwritten digits: with the ten thousand of MNIST's test set, of which the last thousand are held out, two
ranks reach 93 %."""
import os
import re
import subprocess
import sys
import tempfile

TUTTI, BUILD, SOURCE = os.environ["TUTTI"], os.environ["TT_BUILD"], os.environ["TT_SOURCE"]
places = [os.environ.get("TT_MNIST", ""), os.path.join(SOURCE, "..", "shared", "data", "mnist")]
names = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
found = [p for p in places if p and all(os.path.exists(os.path.join(p, n)) for n in names)]
if not found:
    print("skipped: MNIST's " + " and ".join(names) + " are not here; TT_MNIST=FOLDER says where they are")
    sys.exit(77)
images, labels = (os.path.join(found[0], n) for n in names)
with tempfile.TemporaryDirectory() as folder:
    out = subprocess.run(
        [TUTTI, "run", "--standalone", "--nproc-per-node=2", os.path.join(BUILD, "examples", "mnist_trainer"),
         "--images", images,
         "--labels", labels, "--holdout", "1000", "--lr", "0.1", "--epochs", "10", "--batch-size", "32"],
        cwd=folder, stdout=subprocess.PIPE, text=True, timeout=0.9 * float(os.environ["TT_TIMEOUT"]), check=True).stdout
accuracy = re.findall(r"held-out accuracy ([\d.]+) %", out)
print(out)
if len(accuracy) != 10 or float(accuracy[-1]) < 93:
    sys.exit(f"FAILED: expected at least 93 % after ten epochs, got {accuracy}")
