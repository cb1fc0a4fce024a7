"""Softmax, norms and their gradients in binary64, for detml-kernels/src/ops/rowwise/reference.tsv.

Needs NumPy. Inputs are those of `suite::moderate`, so tests make the same ones.
"""

import numpy as np

M = 0xFFFFFFFF


def hashed(seed, i):
    x = (i + seed * 0x9E3779B9 + 0x85EBCA6B) & M
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & M
    x = ((x ^ (x >> 15)) * 0x735A2D97) & M
    return x ^ (x >> 15)


def moderate(seed, n):
    h = [hashed(seed, i) for i in range(n)]
    bits = [(h & 0x807FFFFF) | ((119 + (h >> 23 & 15)) << 23) for h in h]
    return np.array(bits, "u4").view("f4").astype("f8")


def main():
    for columns in [10, 300, 5000]:
        rows = 2
        n = rows * columns
        x, dy = (moderate(columns + k, n).reshape(rows, columns) for k in range(2))
        w, b = (moderate(columns + k, columns) for k in range(2, 4))
        eps = float(np.float32(1e-5))

        m = x.max(1, keepdims=True)
        e = np.exp(x - m)
        softmax = e / e.sum(1, keepdims=True)
        log_softmax = x - m - np.log(e.sum(1, keepdims=True))
        d = x - x.mean(1, keepdims=True)
        scale = 1 / np.sqrt((d * d).mean(1, keepdims=True) + eps)
        rms = 1 / np.sqrt((x * x).mean(1, keepdims=True) + eps)

        def mean(x):
            return x.mean(1, keepdims=True)

        g, h = dy * w, d * scale
        results = {
            "softmax": softmax,
            "log_softmax": log_softmax,
            "layer_norm": d * scale * w + b,
            "rms_norm": x * rms * w,
            "softmax_backward": softmax * (dy - (dy * softmax).sum(1, keepdims=True)),
            "log_softmax_backward": dy - softmax * dy.sum(1, keepdims=True),
            "layer_norm_backward": scale * (g - mean(g) - h * mean(g * h)),
            "rms_norm_backward": rms * (g - x * rms * mean(g * x * rms)),
        }
        for name, result in results.items():
            places = sorted({k * (n - 1) // 11 for k in range(12)})
            largest = np.abs(result).max(1)
            for k in places:
                bound = largest[k // columns]
                print(name, columns, k, repr(float(result.ravel()[k])), repr(float(bound)), sep="\t")


main()
