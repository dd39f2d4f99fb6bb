"""Writes pil-images.json: JPEG and PNG files of all kinds, their pixels as PIL decodes them, and resized as torchvision
resizes them. usage: make_pil_images.py   (Pillow 9.4, torchvision 0.14)"""
import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image
from torchvision import transforms

H, W = 18, 25


def noise(channels, seed=0):
    smooth = np.add.outer(np.arange(H) * 9, np.arange(W) * 5)[..., None] + np.arange(channels) * 40
    rough = np.random.default_rng(seed).integers(0, 60, (H, W, channels))
    return ((smooth + rough) % 256).astype("u1").squeeze()


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(bits, color, rows, palette=b""):
    header = struct.pack(">IIBBBBB", W, H, bits, color, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + palette + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def files():
    rgb, cmyk = Image.fromarray(noise(3)), Image.fromarray(noise(4), "CMYK")
    palette = rgb.quantize(16)
    yield "jpeg", saved(rgb, "JPEG", quality=80)
    yield "jpeg 4:4:4", saved(rgb, "JPEG", quality=95, subsampling=0)
    yield "jpeg progressive", saved(rgb, "JPEG", quality=80, progressive=True)
    yield "jpeg gray", saved(Image.fromarray(noise(1)), "JPEG")
    yield "jpeg cmyk", saved(cmyk, "JPEG", quality=90)
    yield "png", saved(rgb, "PNG")
    yield "png gray", saved(Image.fromarray(noise(1)), "PNG")
    yield "png gray and alpha", saved(Image.fromarray(noise(2), "LA"), "PNG")
    yield "png alpha", saved(Image.fromarray(noise(4), "RGBA"), "PNG")
    yield "png palette", saved(palette, "PNG")
    yield "png transparent palette", saved(palette, "PNG", transparency=3)
    yield "png 1 bit", saved(Image.fromarray(noise(1)).convert("1"), "PNG")
    rows = np.random.default_rng(1).integers(0, 65536, (H, W * 3)).astype(">u2")
    yield "png 16 bits", raw_png(16, 2, [row.tobytes() for row in rows])


def resized(image, height, width, resize):
    steps = [transforms.Resize(resize), transforms.CenterCrop((height, width))] if resize else [
        transforms.Resize((height, width))]
    pixels = np.asarray(transforms.Compose(steps)(image))
    return dict(height=height, width=width, resize=resize, pixels=pixels.tobytes().hex())


def main():
    cases = [dict(name=name, file=data.hex(),
                  pixels=np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).tobytes().hex())
             for name, data in files()]
    image = Image.fromarray(noise(3))
    sizes = [(18, 25, 0), (9, 12, 0), (5, 7, 0), (30, 40, 0), (18, 9, 0), (40, 25, 0), (1, 1, 0), (8, 8, 11),
             (18, 18, 18), (20, 21, 23), (10, 10, 10)]
    data = dict(height=H, width=W, files=cases, resized=[resized(image, *size) for size in sizes])
    with open(pathlib.Path(__file__).with_name("pil-images.json"), "w") as file:
        json.dump(data, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
