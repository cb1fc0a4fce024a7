"""PyTorch."""

import math


def cases(bench):
    torch = bench.torch
    if torch is None:
        return
    side = math.isqrt(bench.elements)
    n = side * side

    def transpose():
        x = torch.rand(side, side, device=bench.device)
        return lambda: x.t().contiguous()

    yield f"transpose {side}x{side}", "PyTorch", transpose

    def prefix_sum():
        x = torch.randint(0, 100, (n,), dtype=torch.int32, device=bench.device)
        return lambda: torch.cumsum(x, 0, dtype=torch.int32)

    def compact():
        x = torch.rand(n, device=bench.device) < 0.5
        return lambda: torch.nonzero(x)

    yield f"prefix sum {n}", "PyTorch", prefix_sum
    yield f"compact half of {n}", "PyTorch", compact
    for columns in [1, 64]:
        rows = n // columns

        def gather(rows=rows, columns=columns):
            x = torch.rand(rows, columns, device=bench.device)
            index = torch.randperm(rows, device=bench.device)
            return lambda: torch.index_select(x, 0, index)

        def scatter(rows=rows, columns=columns):
            x = torch.rand(rows, columns, device=bench.device)
            index = torch.randperm(rows, device=bench.device)
            out = torch.empty_like(x)
            return lambda: out.index_copy_(0, index, x)

        yield f"gather rows of {columns}", "PyTorch", gather
        yield f"scatter rows of {columns}", "PyTorch", scatter
