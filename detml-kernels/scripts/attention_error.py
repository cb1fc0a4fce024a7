"""Errors of attention's order against binary64, for the table in docs/numerics.md.

A fused multiply-add is emulated through binary64, which rounds twice in rare cases.
Prints root mean square (largest) of |error| / sum(weight |v|), in units of 2^-24.
"""

import numpy as np

f32, f64 = np.float32, np.float64


def fma(a, b, c):
    return (a.astype(f64) * b.astype(f64) + c.astype(f64)).astype(f32)


def tree(p):
    while p.shape[1] > 1:
        half = p.shape[1] // 2
        p = p[:, :half] + p[:, half:]
    return p[:, 0]


def attend(s, v, block, segment):
    rows, n = s.shape
    low = np.finfo(f32).min
    new = lambda: (np.full(rows, low, f32), np.zeros(rows, f32), np.zeros((rows, v.shape[1]), f32))
    exp = lambda x: np.exp(x.astype(f64)).astype(f32)
    m_all, l_all, o_all = new()
    for start in range(0, n, segment):
        m, l, o = new()
        for at in range(start, min(n, start + segment), block):
            part = s[:, at : at + block]
            top = np.maximum(m, part.max(1))
            c = exp(m - top)
            p = exp(part - top[:, None])
            full = np.zeros((rows, block), f32)
            full[:, : p.shape[1]] = p
            l = fma(l, c, tree(full))
            o = o * c[:, None]
            for j in range(p.shape[1]):
                o = fma(p[:, j : j + 1], v[at + j][None], o)
            m = top
        top = np.maximum(m_all, m)
        a, b = exp(m_all - top), exp(m - top)
        l_all = fma(l, b, l_all * a)
        o_all = fma(o, np.broadcast_to(b[:, None], o.shape), o_all * a[:, None])
        m_all = top
    return o_all / l_all[:, None]


def main():
    rng = np.random.default_rng(1)
    rows, width, columns = 96, 64, 16
    orders = [(32, 1024), (64, 512), (64, 1024), (64, 2048), (64, 1 << 20), (128, 1024), (1 << 20, 1 << 20)]
    print("data", "n", *orders, sep=" | ")
    for name, spread, positive in [("normal", 1, False), ("positive v", 1, True), ("peaked, positive v", 8, True)]:
        for n in [256, 1024, 4096, 16384]:
            # Scores as they are: their rounding is the same in every order.
            s = (rng.standard_normal((rows, n)) * spread).astype(f32)
            v = rng.random((n, columns)) if positive else rng.standard_normal((n, columns))
            v = v.astype(f32)
            p = np.exp(s.astype(f64) - s.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            exact, size = p @ v.astype(f64), p @ np.abs(v.astype(f64))
            cells = []
            for block, segment in orders:
                block = min(block, 1 << (n - 1).bit_length())
                e = np.abs(attend(s, v, block, segment) - exact) / size * 2**24
                cells.append(f"{np.sqrt((e**2).mean()):.2f} ({e.max():.1f})")
            print(name, n, *cells, sep=" | ", flush=True)


main()
