"""Prints the nodes and weights of Gauss and Legendre's rules on (0, 1) that `ops/shap/rule.rs`
holds, as bits of binary32. Needs mpmath.

    python detml-kernels/scripts/shap.py
"""

import struct

import mpmath as mp

mp.mp.prec = 200
SIZES = (2, 3, 4, 6, 8, 12, 16)


def bits(x):
    """The nearest binary32: mpmath rounds to 24 bits, all of them normal numbers."""
    with mp.workprec(24):
        x = +x
    return struct.unpack("<I", struct.pack("<f", float(x)))[0]


def rule(n):
    # The coefficients, highest power first, by Bonnet's recursion.
    before, last = [mp.mpf(1)], [mp.mpf(1), mp.mpf(0)]
    for k in range(1, n):
        raised = [(2 * k + 1) * c for c in last] + [mp.mpf(0)]
        lower = [mp.mpf(0)] * 2 + [k * c for c in before]
        before, last = last, [(a - b) / (k + 1) for a, b in zip(raised, lower)]
    nodes = sorted(mp.re(x) for x in mp.polyroots(last, maxsteps=500, extraprec=400))
    weights = []
    for x in nodes:
        slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
        weights.append(1 / ((1 - x * x) * slope * slope))
    nodes = [(1 + x) / 2 for x in nodes]
    assert abs(sum(weights) - 1) < 1e-40
    for k in range(2 * n):
        exact = mp.mpf(1) / (k + 1)
        assert abs(sum(w * t**k for t, w in zip(nodes, weights)) - exact) < 1e-40
    return nodes, weights


def show(values):
    words = [f"0x{bits(x):08x}" for x in values]
    words = [f"{w[:6]}_{w[6:]}" for w in words]
    return "\n".join("            " + ", ".join(words[i : i + 6]) + "," for i in range(0, len(words), 6))


for n in SIZES:
    nodes, weights = rule(n)
    print(f"    Rule {{\n        nodes: &[\n{show(nodes)}\n        ],")
    print(f"        weights: &[\n{show(weights)}\n        ],\n    }},")
