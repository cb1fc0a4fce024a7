"""PyTorch."""

CHAIN = 1000


def cases(bench):
    torch = bench.torch
    if torch is None:
        return

    def wait():
        if bench.gpu:
            torch.cuda.synchronize()

    def single():
        x = torch.ones(1, device=bench.device)

        def call():
            torch.neg(x)
            wait()

        return call

    def read():
        x = torch.ones(1, device=bench.device)
        return x.item

    def chain():
        x = torch.ones(1, device=bench.device)

        def call():
            y = x
            for _ in range(CHAIN):
                y = y + 1.0

        return call

    def in_place():
        x = torch.ones(1, device=bench.device)

        def call():
            for _ in range(CHAIN):
                x.add_(1.0)

        return call

    yield "one operation and a wait", "PyTorch", single
    yield "one element read", "PyTorch", read
    yield "1000 chained additions", "PyTorch", chain
    yield "1000 additions in place", "PyTorch", in_place
