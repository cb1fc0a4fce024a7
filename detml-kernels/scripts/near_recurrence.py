"""Reference values in binary64 (NumPy) for ops::neighbors, ops::recurrence and
ops::selective_scan: prints the constants of their tests `matches_binary64`.

    python detml-kernels/scripts/near_recurrence.py
"""

import numpy as np

M = 0xFFFFFFFF


def hashed(seed, i):
    x = (i + seed * 0x9E3779B9 + 0x85EBCA6B) & M
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & M
    x = ((x ^ (x >> 15)) * 0x735A2D97) & M
    return x ^ (x >> 15)


def small(seed, *shape):
    n = int(np.prod(shape))
    return np.array([(hashed(seed, i) >> 8) / 8388608 - 1 for i in range(n)]).reshape(shape)


def show(name, values):
    print(f"    const {name}: [f64; {len(values)}] = [")
    for v in values:
        print(f"        {float(v)!r},")
    print("    ];")


# neighbors
x, y = small(1, 2, 300), small(2, 3, 300)
show("SQUARED", ((x[:, None] - y) ** 2).sum(-1).ravel())
show("MANHATTAN", np.abs(x[:, None] - y).sum(-1).ravel())
show("INNER", (x @ y.T).ravel())

# recurrence
a, b = small(3, 100), small(4, 100)
h, states = 0.0, []
for t in range(100):
    h = a[t] * h + b[t]
    states.append(h)
show("STATES", np.array(states)[[0, 1, 50, 99]])

# selective scan: batch 1, time 70, channels 2, states 5, every option but lengths
T, C, N = 70, 2, 5
s = 100
u, delta = small(s, T, C), small(s + 1, T, C)
A = -8.0 * small(s + 2, C, N) ** 2
A = A.astype("f4").astype("f8")
B, Cm = small(s + 3, T, N), small(s + 4, T, N)
D, z, bias = small(s + 10, C), small(s + 11, T, C), small(s + 12, C)
h0, o, r = small(s + 14, C, N), small(s + 6, T, C), small(s + 16, C, N)
sig = lambda v: 1 / (1 + np.exp(-v))
dt = np.log1p(np.exp(delta + bias))
hs, ys = [h0], []
for t in range(T):
    hs.append(np.exp(dt[t][:, None] * A) * hs[-1] + (dt[t] * u[t])[:, None] * B[t])
    ys.append(hs[-1] @ Cm[t] + D * u[t])
y = np.array(ys)
show("Y", (y * z * sig(z))[[0, 1, 40, 69]].ravel())
show("LAST", hs[-1].ravel())
dy = o * z * sig(z)
dA, dB, dC = np.zeros((C, N)), np.zeros((T, N)), np.zeros((T, N))
ddelta = np.zeros((T, C))
for t in reversed(range(T)):
    decay = np.exp(dt[t][:, None] * A)
    g = dy[t][:, None] * Cm[t] + r
    r = decay * g
    w = r * hs[t]
    dA += w * dt[t][:, None]
    dB[t] = (g * (dt[t] * u[t])[:, None]).sum(0)
    dC[t] = (dy[t][:, None] * hs[t + 1]).sum(0)
    ddelta[t] = ((w * A).sum(1) + u[t] * (g * B[t]).sum(1)) * sig(delta[t] + bias)
show("DA", dA.ravel())
show("DB", dB[[0, 69]].ravel())
show("DC", dC[[0, 69]].ravel())
show("DDELTA", ddelta[[0, 30]].ravel())
show("DINITIAL", r.ravel())
