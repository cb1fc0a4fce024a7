"""Writes tests/data/math.csv: exact values of the elementary functions (mpmath, 200 bits).

Columns: function, bits of the first binary32 argument, bits of the second argument (0 where there
is none), bits of the value rounded to binary64. The arguments are drawn over the range in which a
function neither vanishes nor overflows, and closer around the places where it or a formula for it
cancels.
"""

import random
import struct
from pathlib import Path

import mpmath as m

m.mp.prec = 200
random.seed(1)


def binary32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def bits64(x):
    return struct.unpack("<Q", struct.pack("<d", float(x)))[0]


def uniform(low, high, n=24):
    return [binary32(random.uniform(low, high)) for _ in range(n)]


def logarithmic(low, high, n=16, signs=(1,)):
    return [binary32(random.choice(signs) * 2 ** random.uniform(low, high)) for _ in range(n)]


def near(x, n=4):
    b = bits32(x)
    return [struct.unpack("<f", struct.pack("<I", b + d))[0] for d in range(-n, n + 1)]


def sigmoid(x):
    return 1 / (1 + m.exp(-x))


ROOT_2_PI = m.sqrt(2 / m.pi)
both = (-1, 1)
one = {
    "exp": (m.exp, uniform(-103, 88)),
    "exp2": (lambda x: m.mpf(2) ** x, uniform(-149, 127)),
    "exp10": (lambda x: m.mpf(10) ** x, uniform(-44, 38)),
    "expm1": (m.expm1, uniform(-20, 88) + logarithmic(-120, 0, signs=both)),
    "ln": (m.log, logarithmic(-148, 127) + near(1.0)),
    "log1p": (m.log1p, logarithmic(-120, 127) + uniform(-1, 1)),
    "log2": (lambda x: m.log(x, 2), logarithmic(-148, 127) + near(1.0)),
    "log10": (m.log10, logarithmic(-148, 127) + near(1.0)),
    "sin": (m.sin, uniform(-10, 10) + logarithmic(0, 127, signs=both) + near(3.1415927)),
    "cos": (m.cos, uniform(-10, 10) + logarithmic(0, 127, signs=both) + near(1.5707964)),
    "tan": (m.tan, uniform(-10, 10) + logarithmic(0, 127, signs=both) + near(1.5707964)),
    "asin": (m.asin, uniform(-1, 1) + logarithmic(-30, -1)),
    "acos": (m.acos, uniform(-1, 1) + near(0.99999)),
    "atan": (m.atan, uniform(-4, 4) + logarithmic(-100, 100, signs=both)),
    "sinh": (m.sinh, uniform(-89, 89) + logarithmic(-30, 0, signs=both)),
    "cosh": (m.cosh, uniform(-89, 89) + uniform(-1, 1)),
    "tanh": (m.tanh, uniform(-9, 9) + logarithmic(-30, 0, signs=both)),
    "sigmoid": (sigmoid, uniform(-103, 20)),
    "log_sigmoid": (lambda x: m.log(sigmoid(x)), uniform(-100, 100) + uniform(-2, 2)),
    "softplus": (lambda x: m.log1p(m.exp(x)), uniform(-100, 100) + uniform(-2, 2)),
    "silu": (lambda x: x * sigmoid(x), uniform(-103, 20) + logarithmic(-30, 0, signs=both)),
    "erf": (m.erf, uniform(-4, 4) + logarithmic(-30, 0, signs=both)),
    "erfc": (m.erfc, uniform(-4, 10) + uniform(0, 10)),
    "gelu": (lambda x: x * m.erfc(-x / m.sqrt(2)) / 2, uniform(-14, 6)),
    "gelu_tanh": (
        lambda x: x * sigmoid(2 * ROOT_2_PI * (x + m.mpf("0.044715") * x**3)),
        uniform(-10.5, 6),
    ),
    "lgamma": (
        lambda x: m.re(m.loggamma(x)),
        uniform(0, 4, 40) + near(1.0) + near(2.0) + logarithmic(-100, 100) + uniform(-12, 0),
    ),
    "digamma": (
        m.digamma,
        uniform(0, 4, 40) + near(1.4616321) + logarithmic(-100, 100) + uniform(-12, 0),
    ),
    "cbrt": (lambda x: m.sign(x) * m.cbrt(abs(x)), logarithmic(-148, 127, signs=both)),
    "rsqrt": (lambda x: 1 / m.sqrt(x), logarithmic(-148, 127)),
}


def power_arguments():
    for _ in range(40):
        x = binary32(2 ** random.uniform(-4, 4))
        yield x, binary32(random.uniform(-30, 30))
    for x in near(1.0):
        if x != 1:
            yield x, binary32(random.uniform(1, 60) / abs(x - 1))


def integer_arguments():
    for x, y in power_arguments():
        n = int(y) & 0xFFFFFFFF
        yield random.choice(both) * x, n


def pairs(spread):
    for _ in range(40):
        x = binary32(random.choice(both) * 2 ** random.uniform(-120, 120))
        yield x, binary32(random.choice(both) * abs(x) * 2 ** random.uniform(-spread, spread))


with_bits = lambda arguments: [(x, bits32(y)) for x, y in arguments]
as_float = lambda f: lambda x, y: f(x, m.mpf(struct.unpack("<f", struct.pack("<I", y))[0]))
two = {
    "pow": (as_float(m.power), with_bits(power_arguments())),
    "powi": (lambda x, n: x ** (n - (n >> 31 << 32)), list(integer_arguments())),
    "atan2": (as_float(m.atan2), with_bits(pairs(6))),
    "hypot": (as_float(m.hypot), with_bits(pairs(6))),
}

lines = []
for name, (f, arguments) in one.items():
    for x in arguments:
        lines.append(f"{name},{bits32(x):08x},00000000,{bits64(f(m.mpf(x))):016x}")
for name, (f, arguments) in two.items():
    for x, y in arguments:
        lines.append(f"{name},{bits32(x):08x},{y:08x},{bits64(f(m.mpf(x), y)):016x}")
target = Path(__file__).parent.parent / "data" / "math.csv"
target.parent.mkdir(exist_ok=True)
target.write_text("\n".join(lines) + "\n")
print(len(lines), "values")
