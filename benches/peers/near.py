"""PyTorch's cdist and topk on a GPU; scikit-learn's brute force on a CPU."""


def cases(bench):
    torch = bench.torch
    if bench.gpu:
        shapes = [
            (10_000, 50_000, 64, 10),
            (10_000, 50_000, 16, 10),
            (10_000, 50_000, 256, 10),
            (10_000, 50_000, 64, 100),
            (100, 1_000_000, 64, 10),
            (1, 1_000_000, 64, 10),
        ]
    else:
        shapes = [
            (1000, 50_000, 64, 10),
            (1000, 50_000, 16, 10),
            (1000, 50_000, 256, 10),
            (1, 500_000, 64, 10),
        ]
    for q, n, d, k in shapes:
        name = f"{k} of {n}x{d} for {q}"

        def with_torch(q=q, n=n, d=d, k=k):
            x = torch.rand(q, d, device=bench.device)
            y = torch.rand(n, d, device=bench.device)

            def call():
                for part in x.split(5000):
                    torch.cdist(part, y).topk(k, largest=False)

            return call

        def with_sklearn(q=q, n=n, d=d, k=k):
            import numpy
            from sklearn.neighbors import NearestNeighbors

            x = numpy.random.rand(q, d).astype("f4")
            y = numpy.random.rand(n, d).astype("f4")
            near = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(y)
            return lambda: near.kneighbors(x)

        if not bench.gpu:
            yield name, "scikit-learn", with_sklearn
        elif torch is not None:
            yield name, "PyTorch", with_torch
