"""ERF_TAIL of src/math/error_function.rs: erf(x) = 1 - exp(-ERF_TAIL(x)) for 1 <= x <= 3.95.

A polynomial fitted to -ln(erfc(x)) with weight erfc(x), which is the absolute error of the result:
least squares reweighted towards minimax (Lawson), coefficients rounded one after the other.
Needs mpmath. Prints binary32 bits from the lowest degree, and log2 of the worst absolute error.
"""

import struct

from mpmath import cos, erfc, exp, log, lu_solve, matrix, mp, mpf, nstr, pi, polyval

mp.prec = 120
DEGREE, LOW, HIGH, POINTS = 6, mpf(1), mpf("3.95"), 120


def binary32(x):
    return mpf(struct.unpack("<f", struct.pack("<f", float(x)))[0])


xs = [(LOW + HIGH) / 2 + (HIGH - LOW) / 2 * cos(pi * (k + 0.5) / POINTS) for k in range(POINTS)]
target = [-log(erfc(x)) for x in xs]
weight = [erfc(x) for x in xs]
balance = [mpf(1)] * POINTS
fixed = {}


def solve():
    free = [j for j in range(DEGREE + 1) if j not in fixed]
    a, b = matrix(len(free), len(free)), matrix(len(free), 1)
    for x, f, w, l in zip(xs, target, weight, balance):
        f -= sum(c * x**j for j, c in fixed.items())
        for r, j in enumerate(free):
            b[r] += l * w * w * f * x**j
            for s, k in enumerate(free):
                a[r, s] += l * w * w * x ** (j + k)
    return fixed | dict(zip(free, lu_solve(a, b)))


def value(c, x):
    return polyval([c[j] for j in range(DEGREE, -1, -1)], x)


for _ in range(40):
    c = solve()
    error = [abs(f - value(c, x)) * w for x, f, w in zip(xs, target, weight)]
    balance = [l * (e / max(error) + mpf("1e-4")) for l, e in zip(balance, error)]
    balance = [l / sum(balance) * POINTS for l in balance]
for j in range(DEGREE + 1):
    fixed[j] = binary32(solve()[j])
    print(f"ERF_TAIL_{j} = 0x{struct.unpack('<I', struct.pack('<f', float(fixed[j])))[0]:08x}")
grid = [LOW + (HIGH - LOW) * k / 400 for k in range(401)]
print("// 2^", nstr(log(max(abs(exp(-value(fixed, x)) - erfc(x)) for x in grid), 2), 5))
