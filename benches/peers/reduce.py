"""PyTorch; NumPy on a CPU."""

import math


def cases(bench):
    n = bench.elements
    side = math.isqrt(n)
    torch = bench.torch
    import numpy

    for columns in dict.fromkeys([side, 4096, 768, 256, 28, 16]):
        rows = n // columns
        for axis, what in [(1, "rows"), (0, "columns"), (None, "whole")]:
            if axis is None and columns != side:
                continue
            for op in ["sum", "argmax", "variance"]:
                name = f"{op} {what} {rows}x{columns}"

                def with_torch(op=op, axis=axis, rows=rows, columns=columns):
                    x = torch.rand(rows, columns, device=bench.device) - 0.5
                    if op == "sum":
                        return lambda: x.sum() if axis is None else x.sum(axis)
                    if op == "argmax":
                        return lambda: x.argmax(axis)
                    return lambda: torch.var_mean(x, axis, correction=0)

                def with_numpy(op=op, axis=axis, rows=rows, columns=columns):
                    x = numpy.random.rand(rows, columns).astype("f4") - numpy.float32(0.5)
                    if op == "sum":
                        return lambda: x.sum(axis)
                    if op == "argmax":
                        return lambda: x.argmax(axis)
                    return lambda: (x.mean(axis), x.var(axis))

                if bench.gpu and torch is not None:
                    yield name, "PyTorch", with_torch
                elif not bench.gpu:
                    yield name, "NumPy", with_numpy
