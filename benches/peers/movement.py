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
