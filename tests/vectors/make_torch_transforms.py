"""What torchvision's transforms make of tensors.
usage: make_torch_transforms.py OUT.json   (torch >= 1.13, torchvision >= 0.14)
Element i of an image is (37 i + 11) % 251, as u8, or that / 251 as f32. A case has the transform's name and numbers;
random ones are given ranges of one number."""
import json
import sys
import warnings

import torch
import torchvision
from torchvision import transforms as T
from torchvision.transforms import functional as F

warnings.filterwarnings("ignore")
MODES = {False: T.InterpolationMode.NEAREST, True: T.InterpolationMode.BILINEAR}


def image(shape, dtype):
    x = (37 * torch.arange(torch.Size(shape).numel()) + 11) % 251
    return (x.to(torch.uint8) if dtype == "u8" else x.float() / 251).reshape(shape)


def case(name, shape, dtype, numbers, result):
    y = result(image(shape, dtype))
    values = [v if dtype == "u8" and y.dtype == torch.uint8 else float(f"{v:.9g}") for v in y.flatten().tolist()]
    return {"name": name, "shape": shape, "dtype": dtype, "numbers": numbers, "result": list(y.shape), "values": values}


def affine(x, degrees, tx, ty, scale, sx, sy, bilinear, fill):
    return F.affine(x, degrees, [tx, ty], scale, [sx, sy], MODES[bilinear], [float(fill)] * x.shape[0])


def all_cases():
    for shape in ([1, 9, 12], [3, 7, 6]):
        for dtype in ("u8", "f32"):
            for size in ([5, 4], [4, 5], [9, 6], [12, 3], [15, 17]):
                yield case("center_crop", shape, dtype, size, lambda x: F.center_crop(x, size))
            for size in ([5, 4], [13, 11], [18, 24], [7, 6], [1, 1], [20, 3]):
                for nearest in (0, 1):
                    yield case("resize", shape, dtype, size + [nearest],
                               lambda x: F.resize(x, size, MODES[not nearest], antialias=False))
            yield case("hflip", shape, dtype, [], F.hflip)
            yield case("vflip", shape, dtype, [], F.vflip)
            for degrees in (0, 90, 30, -17.5, 200):
                for bilinear in (False, True):
                    yield case("rotate", shape, dtype, [degrees, bilinear, 7],
                               lambda x: F.rotate(x, degrees, MODES[bilinear], fill=[7.0] * shape[0]))
            for numbers in ([12, 0, 0, 1, 0, 0], [0, 0, 0, 1.3, 0, 0], [0, 0, 0, 0.7, 15, 0], [-33, 0, 0, 1.1, 10, -8]):
                for bilinear in (False, True):
                    yield case("affine", shape, dtype, numbers + [bilinear, 5],
                               lambda x: affine(x, *numbers, bilinear, 5))
            if shape[0] == 3 or dtype == "u8":
                for factor in (0.0, 0.3, 0.99, 1.7):
                    yield case("brightness", shape, dtype, [factor], lambda x: F.adjust_brightness(x, factor))
                    yield case("contrast", shape, dtype, [factor], lambda x: F.adjust_contrast(x, factor))
                    yield case("saturation", shape, dtype, [factor], lambda x: F.adjust_saturation(x, factor))
                for turn in (-0.5, -0.21, 0.1, 0.37, 0.5):
                    yield case("hue", shape, dtype, [turn], lambda x: F.adjust_hue(x, turn))
        yield case("to_tensor", shape, "u8", [], lambda x: F.convert_image_dtype(x))
        yield case("normalize", shape, "f32", [], lambda x: F.normalize(x, [0.1, 0.2, 0.3][:shape[0]],
                                                                        [0.5, 0.25, 0.3][:shape[0]]))


if __name__ == "__main__":
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "torchvision": torchvision.__version__, "cases": list(all_cases())}, f,
                  separators=(",", ":"))
        f.write("\n")
