"""cuBLAS (TF32 off) through PyTorch; OpenBLAS through NumPy on a CPU."""


def cases(bench):
    if bench.gpu:
        torch = bench.torch
        if torch is None:
            return
        who = "cuBLAS"

        def rand(*shape):
            return torch.rand(*shape, device=bench.device) - 0.5

        def product(a, b):
            out = torch.matmul(a, b)
            return lambda: torch.matmul(a, b, out=out)

    else:
        import numpy

        who = "OpenBLAS"
        generator = numpy.random.default_rng(1)

        def rand(*shape):
            return generator.random(shape, dtype="f4") - numpy.float32(0.5)

        def product(a, b):
            out = numpy.matmul(a, b)
            return lambda: numpy.matmul(a, b, out=out)

    def operands(batch, m, k, n, layout):
        lead = [batch] if batch > 1 else []
        a = rand(*lead, k, m).swapaxes(-1, -2) if layout[0] == "t" else rand(*lead, m, k)
        b = rand(*lead, n, k).swapaxes(-1, -2) if layout[1] == "t" else rand(*lead, k, n)
        return product(a, b)

    def gram(n, k):
        a = rand(k, n)
        return product(a.swapaxes(0, 1), a)

    squares = [2048, 4096, 8192] if bench.gpu else [512, 1024, 2048]
    for m, k, n in [(n, n, n) for n in squares] + [(4095, 1023, 777)]:
        for layout in ["nn", "nt", "tn"]:
            yield (
                f"{layout} {m}x{k}x{n}",
                who,
                lambda m=m, k=k, n=n, layout=layout: operands(1, m, k, n, layout),
            )
    for n in [64, 128, 256]:
        batch = 1000 if bench.gpu else 64000 // n
        for layout in ["nn", "nt"]:
            yield (
                f"{layout} {batch} of {n}x{n}x{n}",
                who,
                lambda n=n, batch=batch, layout=layout: operands(batch, n, n, n, layout),
            )
    for m in [1, 2, 4, 8, 16, 32]:
        for layout in ["nn", "nt"]:
            yield (
                f"{layout} {m}x4096x4096",
                who,
                lambda m=m, layout=layout: operands(1, m, 4096, 4096, layout),
            )
    for layout in ["nn", "tn"]:
        yield (
            f"{layout} 4096x4096x1",
            who,
            lambda layout=layout: operands(1, 4096, 4096, 1, layout),
        )
    for n in [28, 64, 256, 1024]:
        k = 1_000_000 if n < 256 or bench.gpu and n == 256 else 100_000
        yield f"gram {n}x{k}x{n}", who, lambda n=n, k=k: gram(n, k)
