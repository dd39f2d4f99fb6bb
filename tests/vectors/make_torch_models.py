"""Ready models as PyTorch and torchvision make them from seed 0: names, shapes and bits of the state, the output in
training mode and gradients, in f64.
usage: make_torch_models.py OUT.json   (torch >= 1.13 with torchvision; tests/unit/models/test_models.c makes the
same)"""
import json, sys, zlib
import torch, torch.nn as nn, torch.nn.functional as F
import torchvision.models.resnet as resnet


def value(shape):
    """What tests/unit/models/test_models.c calls model_input()."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return ((i * 37 + 19) % 211).double().sub(105).div(105).reshape(shape)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)


def small_input(make):
    """A network of torchvision's whose first convolution is 3x3 with stride 1, without pooling after it."""
    class Conv(nn.Conv2d):
        def __init__(self, c, k, kernel_size, stride=1, padding=0, **options):
            stem = kernel_size == 7
            super().__init__(c, k, 3 if stem else kernel_size, 1 if stem else stride, 1 if stem else padding, **options)
    plain, nn.Conv2d = nn.Conv2d, Conv
    try:
        model = make(num_classes=10)
    finally:
        nn.Conv2d = plain
    model.maxpool = nn.Identity()
    return model


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)), (3, 1, 28, 28)),
    "mnist_convnet": (ConvNet, (3, 1, 28, 28)),
    "resnet18": (lambda: resnet.resnet18(num_classes=10), (2, 3, 33, 33)),
    "resnet18_small_input": (lambda: small_input(resnet.resnet18), (2, 3, 16, 16)),
    "resnet18_zero_init": (lambda: resnet.resnet18(num_classes=10, zero_init_residual=True), (2, 3, 33, 33)),
    "resnet34": (lambda: resnet.resnet34(num_classes=10), (2, 3, 33, 33)),
    "resnet50": (lambda: resnet.resnet50(num_classes=10), (2, 3, 33, 33)),
}


def bits(x): return zlib.crc32(x.detach().contiguous().numpy().tobytes())


def numbers(t): return [float("%.17g" % v) for v in t.detach().flatten().tolist()]


def describe(make, shape):
    torch.manual_seed(0)
    model = make()
    state = [[name, list(x.shape), bits(x)] for name, x in model.state_dict().items()]
    model = model.double()
    x = value(shape).requires_grad_()
    y = model(x)
    (y * value(y.shape)).sum().backward()
    norms = [p.grad.norm().item() for p in model.parameters()]
    after = {name: x.double().norm().item() for name, x in model.named_buffers()}
    return {"input": list(shape), "state": state, "output": numbers(y), "input_grad_norm": x.grad.norm().item(),
            "grad_norms": norms, "buffer_norms": after}


def main(path):
    torch.set_num_threads(1)
    with open(path, "w") as file:
        json.dump({name: describe(*model) for name, model in MODELS.items()}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
