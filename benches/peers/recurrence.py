"""PyTorch has no such operation: a copy of as many bytes stands for the bound."""


def cases(bench):
    torch = bench.torch
    if torch is None:
        return
    if bench.gpu:
        shapes = [(8, 2048, 2048), (32, 1024, 2048), (1, 16_384, 2048)]
        scans = [(8, 2048, 2048, 16), (1, 2048, 2048, 16)]
    else:
        shapes = [(2, 1024, 1024)]
        scans = [(1, 512, 512, 16)]

    def copy(words):
        def make():
            x = torch.rand(words // 2, device=bench.device)
            y = torch.empty_like(x)
            return lambda: y.copy_(x)

        return make

    for b, t, c in shapes:
        n = b * t * c
        yield f"linear {b}x{t}x{c}", "PyTorch copy", copy(3 * n)
        yield f"linear backward {b}x{t}x{c}", "PyTorch copy", copy(5 * n)
    for b, t, c, s in scans:
        n, small = b * t * c, 2 * b * t * s
        yield f"selective scan {b}x{t}x{c} of {s}", "PyTorch copy", copy(4 * n + small)
        yield f"selective scan backward {b}x{t}x{c} of {s}", "PyTorch copy", copy(7 * n + 2 * small)
