"""Coefficients of detml-kernels/src/math whose functions Sollya lacks or whose error is weighted.

Each is a polynomial fitted by least squares reweighted towards minimax (Lawson), its coefficients
rounded to binary32 one after the other and the rest refitted. Needs mpmath. Prints bits from the
lowest degree, and log2 of the worst weighted error.
"""

import struct

import mpmath as m

m.mp.prec = 150
POINTS = 80


def bits(x):
    return struct.unpack("<I", struct.pack("<f", float(x)))[0]


def binary32(x):
    return m.mpf(struct.unpack("<f", struct.pack("<f", float(x)))[0])


def fit(name, target, weight, degree, low, high):
    """`weight(x) * (target(x) - p(x))` is the error to make small for low <= x <= high."""
    low, high = m.mpf(low), m.mpf(high)
    xs = [(low + high) / 2 + (high - low) / 2 * m.cos(m.pi * (k + 0.5) / POINTS) for k in range(POINTS)]
    f = [target(x) for x in xs]
    w = [weight(x) for x in xs]
    powers = [[x**j for j in range(degree + 1)] for x in xs]
    balance = [m.mpf(1)] * POINTS
    fixed = {}

    def solve():
        free = [j for j in range(degree + 1) if j not in fixed]
        a, b = m.matrix(len(free), len(free)), m.matrix(len(free), 1)
        for i, p in enumerate(powers):
            weight2 = balance[i] * w[i] ** 2
            rest = f[i] - sum(c * p[j] for j, c in fixed.items())
            for r, j in enumerate(free):
                b[r] += weight2 * rest * p[j]
                for s in range(r, len(free)):
                    a[r, s] += weight2 * p[j] * p[free[s]]
        for r in range(len(free)):
            for s in range(r):
                a[r, s] = a[s, r]
        return fixed | dict(zip(free, m.lu_solve(a, b)))

    def errors(c):
        return [abs(f[i] - sum(c[j] * p[j] for j in c)) * w[i] for i, p in enumerate(powers)]

    for _ in range(15):
        e = errors(solve())
        balance = [b * (x / max(e) + m.mpf("1e-4")) for b, x in zip(balance, e)]
        total = sum(balance)
        balance = [b / total * POINTS for b in balance]
    for j in range(degree + 1):
        fixed[j] = binary32(solve()[j])
    print(f"// {name}, 2^{m.nstr(m.log(max(errors(fixed)), 2), 5)}")
    for j in range(degree + 1):
        print(f"{name}_{j} = 0x{bits(fixed[j]):08x}")


# erf(x) = 1 - exp(-ERF_TAIL(x)) for 1 <= x <= 3.95, absolute error of the result.
fit("ERF_TAIL", lambda x: -m.log(m.erfc(x)), m.erfc, 6, 1, "3.95")

# lgamma(1 + x) = x LGAMMA_1P(x) for 0 <= x < 1/2, absolute error.
fit("LGAMMA_1P", lambda x: m.loggamma(1 + x) / x, lambda x: x, 7, "1e-12", 0.5)

# lgamma(x) = (x - 1) (x - 2) LGAMMA_1(x - 7/8) for 1/2 <= x < 5/4, and with LGAMMA_2(x - 15/8) for
# 5/4 <= x < 5/2; relative error.
quotient = lambda x: m.loggamma(x) / ((x - 1) * (x - 2))
for name, degree, middle, half in ("LGAMMA_1", 11, 0.875, 0.375), ("LGAMMA_2", 11, 1.875, 0.625):
    fit(name, lambda t: quotient(t + middle), lambda t: 1 / quotient(t + middle), degree, -half, half)

# lgamma(x) = (x - 1/2) (ln(x) - 1) + (ln(2 pi) - 1) / 2 + z STIRLING(z^2), z = 1/x, x >= 5/2;
# relative error.
def stirling(u):
    x = 1 / m.sqrt(u)
    return (m.loggamma(x) - (x - 0.5) * (m.log(x) - 1) - (m.log(2 * m.pi) - 1) / 2) * x


fit("STIRLING", stirling, lambda u: m.sqrt(u) / m.loggamma(1 / m.sqrt(u)), 5, "1e-8", 0.1601)

# digamma(r + e) = e DIGAMMA(e), r the positive root, for 1 <= r + e < 2; relative error.
root = m.findroot(m.digamma, 1.4616)
slope = lambda e: m.digamma(root + e) / e
fit("DIGAMMA", slope, lambda e: 1 / slope(e), 11, 1 - root, 2 - root)

# digamma(x) = ln(x) - 1/(2 x) - z^2 ASYMPTOTIC(z^2), z = 1/x, x >= 2; relative error.
def asymptotic(u):
    x = 1 / m.sqrt(u)
    return (m.log(x) - 1 / (2 * x) - m.digamma(x)) / u


fit("ASYMPTOTIC", asymptotic, lambda u: u / m.digamma(1 / m.sqrt(u)), 5, "1e-6", 0.2501)

high = binary32(root)
print(f"// digamma's root {m.nstr(root, 25)} = 0x{bits(high):08x} + 0x{bits(root - high):08x}")
