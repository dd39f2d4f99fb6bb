"""Folders of random pictures: the same classes, the same order and the same bytes as torchvision's ImageFolder with
Resize and CenterCrop."""
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image
    from torchvision import datasets, transforms
except ImportError as missing:
    print(f"skipped: {missing} (./dev setup --interop installs it)")
    sys.exit(77)

PROGRAM = os.path.join(os.environ["TT_PROGRAMS"], "image_folder")
SIZES = [(32, 32, 0), (224, 224, 256), (17, 40, 40), (5, 3, 8), (64, 48, 64)]


def draw(path, dice):
    height, width = dice.randint(1, 300), dice.randint(1, 300)
    channels = dice.choice([1, 3, 3, 4])
    pixels = np.random.default_rng(dice.randrange(1 << 30)).integers(0, 256, (height, width, channels))
    image = Image.fromarray(pixels.astype("u1").squeeze(2) if channels == 1 else pixels.astype("u1"))
    if path.endswith("png"):
        image.save(path)
    else:
        options = {"quality": dice.randint(20, 100), "progressive": dice.random() < 0.5}
        (image.convert("CMYK") if dice.random() < 0.2 else image.convert("RGB")).save(path, "JPEG", **options)


def expected(folder, height, width, resize):
    steps = [transforms.Resize(resize), transforms.CenterCrop((height, width))] if resize else [
        transforms.Resize((height, width))]
    for image, label in datasets.ImageFolder(folder, transforms.Compose(steps)):
        yield bytes([label]) + np.asarray(image).transpose(2, 0, 1).tobytes()


def main():
    dice = random.Random(int(os.environ.get("TT_STORM_SEED", "1")))
    with tempfile.TemporaryDirectory(prefix="tutti-images-") as folder:
        for name in ("b", "B", "a b", "\u00e4"):
            for below in ("", "x", "x.y", "x/z"):
                os.makedirs(os.path.join(folder, name, below), exist_ok=True)
                for i in range(2):
                    ending = dice.choice(["png", "jpg", "JPEG"])
                    draw(os.path.join(folder, name, below, f"{dice.randrange(1000)}-{i}.{ending}"), dice)
        for size in SIZES:
            got = subprocess.run([PROGRAM, folder, *map(str, size)], check=True, capture_output=True).stdout
            assert got == b"".join(expected(folder, *size)), size
    print(f"{len(SIZES)} sizes of 32 pictures are torchvision's, byte for byte")


if __name__ == "__main__":
    main()
