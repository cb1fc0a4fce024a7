"""Writes src/ops/conv/reference.tsv: convolutions and their gradients in binary64.

PyTorch (2.7.1 on a CPU) on the numbers that the tests make (`suite::moderate`), one element a
line: the case's name, the part, its value, and the sum of its terms' magnitudes.

    python3 detml-kernels/scripts/conv.py > detml-kernels/src/ops/conv/reference.tsv
"""

import numpy
import torch
import torch.nn.functional as F

# name, seed, images, weights, stride, padding ((above, below), (left, right)), dilation, groups
CASES = [
    ("plain", 1, (2, 3, 5, 6), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ("strided", 2, (1, 2, 8, 9), (3, 2, 3, 3), (2, 3), ((1, 0), (2, 1)), (1, 1), 1),
    ("dilated groups", 3, (2, 4, 7, 6), (6, 2, 2, 3), (2, 1), ((1, 1), (0, 2)), (3, 2), 2),
    ("depthwise", 4, (1, 5, 6, 5), (5, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), 5),
    ("deep", 5, (1, 130, 2, 3), (1, 130, 2, 2), (1, 1), ((1, 1), (0, 0)), (1, 1), 1),
]


def words(seed, n):
    with numpy.errstate(over="ignore"):
        i = numpy.arange(n, dtype=numpy.uint32)
        x = i + numpy.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF) + numpy.uint32(0x85EBCA6B)
        x = (x ^ (x >> 16)) * numpy.uint32(0x21F0AAAD)
        x = (x ^ (x >> 15)) * numpy.uint32(0x735A2D97)
        return x ^ (x >> 15)


def moderate(seed, shape):
    h = words(seed, int(numpy.prod(shape)))
    bits = (h & 0x807FFFFF) | ((119 + (h >> 23 & 15)) << 23)
    x = bits.astype(numpy.uint32).view(numpy.float32).astype(numpy.float64)
    return torch.from_numpy(x.reshape(shape))


def results(x, w, b, y, stride, padding, dilation, groups):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    (above, below), (left, right) = padding
    padded = F.pad(x, (left, right, above, below))
    out = F.conv2d(padded, w, b, stride, 0, dilation, groups)
    gradient = y(out.shape)
    out.backward(gradient)
    return {"forward": out.detach(), "data": x.grad, "weight": w.grad}


for name, seed, x, w, *how in CASES:
    a, b = moderate(4 * seed, x), moderate(4 * seed + 1, w)
    bias = moderate(4 * seed + 2, (w[0],))

    def gradient(shape):
        return moderate(4 * seed + 3, shape)

    exact = results(a, b, bias, gradient, *how)
    size = results(a.abs(), b.abs(), bias.abs(), lambda s: gradient(s).abs(), *how)
    for part in exact:
        for value, magnitude in zip(exact[part].flatten().tolist(), size[part].flatten().tolist()):
            print(name, part, repr(value), f"{magnitude:.6g}", sep="\t")
