"""PyTorch; where it is missing NumPy's softmax and layer norm, written out."""

import math


def cases(bench):
    n = bench.elements
    side = math.isqrt(n)
    torch = bench.torch
    widths = {side, 16, 28, 128, 256, 768, 1024, 4096, 50257, 1 << 20}
    if bench.gpu:
        widths |= {16384, 32768}
    ops = [
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "softmax_backward",
        "log_softmax_backward",
        "layer_norm_backward",
        "layer_norm_parameters",
    ]
    for columns in sorted(widths):
        rows = n // columns
        for op in ops:
            name = f"{op} {rows}x{columns}"

            def with_torch(op=op, rows=rows, columns=columns):
                x, dy = (torch.rand(rows, columns, device=bench.device) for _ in range(2))
                w, b = (torch.rand(columns, device=bench.device) for _ in range(2))
                aten = torch.ops.aten
                norm = torch.nn.functional
                if op == "softmax":
                    return lambda: torch.softmax(x, 1)
                if op == "log_softmax":
                    return lambda: torch.log_softmax(x, 1)
                if op == "layer_norm":
                    return lambda: norm.layer_norm(x, [columns], w, b, 1e-5)
                if op == "rms_norm":
                    return lambda: norm.rms_norm(x, [columns], w, 1e-5)
                if op == "softmax_backward":
                    return lambda: aten._softmax_backward_data(dy, x, 1, torch.float32)
                if op == "log_softmax_backward":
                    return lambda: aten._log_softmax_backward_data(dy, x, 1, torch.float32)
                _, mean, scale = torch.native_layer_norm(x, [columns], w, b, 1e-5)
                wanted = [op == "layer_norm_backward"] + [op == "layer_norm_parameters"] * 2
                return lambda: aten.native_layer_norm_backward(
                    dy, x, [columns], mean, scale, w, b, wanted
                )

            def with_numpy(op=op, rows=rows, columns=columns):
                import numpy

                x = numpy.random.rand(rows, columns).astype("f4")
                if op == "softmax":

                    def softmax():
                        e = numpy.exp(x - x.max(1, keepdims=True))
                        return e / e.sum(1, keepdims=True)

                    return softmax

                def layer_norm():
                    d = x - x.mean(1, keepdims=True)
                    return d / numpy.sqrt(x.var(1, keepdims=True) + 1e-5)

                return layer_norm

            if torch is not None:
                yield name, "PyTorch", with_torch
            elif not bench.gpu and op in ("softmax", "layer_norm"):
                yield name, "NumPy", with_numpy
