"""PyTorch; NumPy on a CPU for what it has."""


def cases(bench):
    n = bench.elements
    torch = bench.torch
    if torch is not None:
        names = {
            "neg": torch.neg,
            "exp": torch.exp,
            "ln": torch.log,
            "tanh": torch.tanh,
            "sigmoid": torch.sigmoid,
            "gelu": torch.nn.functional.gelu,
            "sin": torch.sin,
        }
        for name, function in names.items():

            def make(function=function):
                x = torch.rand(n, device=bench.device) - 0.5
                return lambda: function(x)

            yield name, "PyTorch", make

        def add():
            x = torch.rand(n, device=bench.device) - 0.5
            return lambda: x + x

        def add_row():
            x = torch.rand(n // 256, 256, device=bench.device) - 0.5
            row = torch.rand(256, device=bench.device)
            return lambda: x + row

        def power():
            x = torch.rand(n, device=bench.device)
            return lambda: torch.pow(x, x)

        yield "add", "PyTorch", add
        yield "add a row of 256", "PyTorch", add_row
        yield "pow", "PyTorch", power
    elif not bench.gpu:
        import numpy

        names = {
            "neg": numpy.negative,
            "exp": numpy.exp,
            "ln": numpy.log,
            "tanh": numpy.tanh,
            "sin": numpy.sin,
        }
        for name, function in names.items():

            def make(function=function):
                x = numpy.random.rand(n).astype("f4") - numpy.float32(0.5)
                out = numpy.empty_like(x)
                return lambda: function(x, out=out)

            yield name, "NumPy", make
