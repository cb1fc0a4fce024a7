"""PyTorch; NumPy on a CPU. Their sums of weights are rounded and, on a GPU, taken in any order."""


def cases(bench):
    n = bench.elements
    torch = bench.torch
    import numpy

    for bins in [256, 4096]:
        if bench.gpu and torch is not None:

            def counts(bins=bins):
                x = torch.randint(0, bins, (n,), dtype=torch.int32, device=bench.device)
                return lambda: torch.bincount(x, minlength=bins)

            def sums(bins=bins):
                x = torch.randint(0, bins, (n,), device=bench.device)
                weights = torch.rand(n, device=bench.device)
                out = torch.zeros(bins, device=bench.device)
                return lambda: out.index_add_(0, x, weights)

            yield f"counts of {n} in {bins}", "PyTorch", counts
            yield f"sums of {n} in {bins}", "PyTorch", sums
        elif not bench.gpu:

            def counts(bins=bins):
                x = numpy.random.randint(0, bins, n)
                return lambda: numpy.bincount(x, minlength=bins)

            def sums(bins=bins):
                x = numpy.random.randint(0, bins, n)
                weights = numpy.random.rand(n)
                return lambda: numpy.bincount(x, weights=weights, minlength=bins)

            yield f"counts of {n} in {bins}", "NumPy", counts
            yield f"sums of {n} in {bins}", "NumPy", sums
