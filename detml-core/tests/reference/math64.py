"""Tables of `src/math64.rs` and reference values of its test, by mpmath.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install mpmath==1.4.1
    /tmp/venv/bin/python math64.py tables    # prints Rust
    /tmp/venv/bin/python math64.py values    # writes math64.csv

A line of math64.csv is: function, x, an f64 near f(x), the rest in ulps of that; all as bits.
"""

import math
import random
import struct
import sys
from pathlib import Path

from mpmath import mp, mpf

mp.prec = 400


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def from_bits(b):
    return struct.unpack("<d", struct.pack("<Q", b))[0]


def grid(x, places):
    """x rounded to a multiple of 2^-places."""
    return mp.nint(x * mpf(2) ** places) / mpf(2) ** places


def rust(x):
    return f"0x{bits(float(x)):016x}"


def tables():
    print("const EXP: [(u64, u64); 32] = [")
    for j in range(32):
        exact = mpf(2) ** (mpf(j) / 32)
        high = mpf(float(exact))
        print(f"    ({rust(high)}, {rust(exact - high)}),")
    print("];")
    step = mp.log(2) / 32
    high = grid(step, 42)
    print(f"const STEP: (u64, u64) = ({rust(high)}, {rust(step - high)});")
    print(f"const STEPS_PER_UNIT: u64 = {rust(1 / step)};")
    high = grid(mp.log(2), 42)
    print(f"const LN_2: (u64, u64) = ({rust(high)}, {rust(mp.log(2) - high)});")
    print("const LN: [(u64, u64, u64); 92] = [")
    for j in range(90, 182):
        inverse = grid(mpf(128) / j, 20)
        exact = -mp.log(inverse)
        high = grid(exact, 42)
        print(f"    ({rust(inverse)}, {rust(high)}, {rust(exact - high)}),")
    print("];")


def values():
    draw = random.Random(1)
    lines = []

    def add(name, f, x):
        exact = f(mpf(x))
        high = float(exact)
        rest = 0.0 if math.isinf(high) else float((exact - mpf(high)) / mpf(math.ulp(high)))
        lines.append(f"{name},{bits(x):016x},{bits(high):016x},{bits(rest):016x}")

    step = 0.021660849392498290
    xs = [0.0, -0.0, 1.0, -1.0, 709.782712893384, 709.782712893383, -708.3964185322641, -745.1332191019411,
          -745.13, -740.0, -720.0, 5e-324, -5e-324, 1e-17, -1e-17, 2.0**-54, 0.5]
    xs += [k * step / 2 + d for k in range(-130, 131) for d in (-1e-12, 1e-12)]
    xs += [draw.uniform(-745.1, 709.78) for _ in range(400)]
    xs += [draw.uniform(-1, 1) * 2.0 ** draw.randint(-60, 0) for _ in range(300)]
    for x in xs:
        add("exp", mp.exp, x)

    xs = [1.0, 2.0, 0.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 10.0, 1e-310]
    one = bits(1.0)
    xs += [from_bits(one + d) for d in (1, 2, 3, 1 << 20, 1 << 40, 1 << 45)]
    xs += [from_bits(one - d) for d in (1, 2, 3, 1 << 20, 1 << 40, 1 << 45)]
    xs += [(j + 0.5) / 128 * (1 + d) for j in range(90, 182) for d in (-2e-16, 0, 2e-16)]
    xs += [from_bits(bits(2**0.5) + d) for d in (-1, 0, 1)]
    xs += [draw.uniform(0.5, 2) for _ in range(300)]
    xs += [from_bits(draw.randrange(1, 0x7FF0_0000_0000_0000)) for _ in range(400)]
    for x in xs:
        add("ln", mp.log, x)
    Path(__file__).with_name("math64.csv").write_text("\n".join(lines) + "\n")


{"tables": tables, "values": values}[sys.argv[1]]()
