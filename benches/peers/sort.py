"""PyTorch; NumPy on a CPU."""


def cases(bench):
    n = bench.elements
    torch = bench.torch
    import numpy

    def both(name, with_torch, with_numpy):
        if bench.gpu and torch is not None:
            return [(name, "PyTorch", with_torch)]
        return [] if bench.gpu or with_numpy is None else [(name, "NumPy", with_numpy)]

    def words():
        return numpy.random.randint(0, 2**32, n, dtype=numpy.uint32)

    def with_torch(make, call):
        def prepare():
            x = make()
            return lambda: call(x)

        return prepare

    def ints():
        return torch.randint(-(2**31), 2**31 - 1, (n,), dtype=torch.int32, device=bench.device)

    def floats():
        return torch.randn(n, device=bench.device)

    def numpy_floats():
        x = numpy.random.randn(n).astype("f4")
        return lambda: numpy.argsort(x, kind="stable")

    def numpy_words():
        x = words()
        return lambda: numpy.sort(x)

    yield from both(f"sort u32 {n}", with_torch(ints, torch and torch.sort), numpy_words)
    yield from both(
        f"sort f32 with values {n}", with_torch(floats, torch and torch.sort), None
    )
    yield from both(f"argsort f32 {n}", with_torch(floats, torch and torch.argsort), numpy_floats)
    many = 1000 if bench.gpu else 100
    for rows, columns, k in [(1, n, 10), (1, n, 1000), (many, 50_000, 10)]:

        def torch_topk(rows=rows, columns=columns, k=k):
            x = torch.randn(rows, columns, device=bench.device)
            return lambda: torch.topk(x, k, dim=1)

        def numpy_topk(rows=rows, columns=columns, k=k):
            x = numpy.random.randn(rows, columns).astype("f4")
            return lambda: numpy.argpartition(x, columns - k, axis=1)[:, -k:]

        yield from both(f"top {k} of {rows}x{columns}", torch_topk, numpy_topk)
