"""PyTorch: cuDNN on a GPU, oneDNN on a CPU."""

LAYERS = [
    ("3x3", 256, 56, (256, 256, 3, 3), 1, 1, 1),
    ("3x3 small", 512, 7, (512, 512, 3, 3), 1, 1, 1),
    ("3x3 stride 2", 128, 56, (256, 128, 3, 3), 2, 1, 1),
    ("7x7 stem", 3, 224, (64, 3, 7, 7), 2, 3, 1),
    ("1x1", 256, 56, (64, 256, 1, 1), 1, 0, 1),
    ("3x3 in 32 groups", 256, 56, (256, 8, 3, 3), 1, 1, 32),
    ("3x3 depthwise", 256, 56, (256, 1, 3, 3), 1, 1, 256),
]


def cases(bench):
    torch = bench.torch
    if torch is None:
        return
    torch.backends.cudnn.benchmark = True
    n = 64 if bench.gpu else 4
    for name, channels, side, w_shape, stride, padding, groups in LAYERS:

        def inputs(channels=channels, side=side, w_shape=w_shape, stride=stride, padding=padding, groups=groups):
            x = torch.rand(n, channels, side, side, device=bench.device) - 0.5
            w = torch.rand(*w_shape, device=bench.device) - 0.5
            return x, w, {"stride": stride, "padding": padding, "groups": groups}

        def forward(inputs=inputs):
            x, w, how = inputs()
            return lambda: torch.nn.functional.conv2d(x, w, **how)

        def gradient(which, inputs=inputs):
            x, w, how = inputs()
            y = torch.nn.functional.conv2d(x, w, **how)
            stride, padding, groups = how["stride"], how["padding"], how["groups"]
            mask = [which == "data", which == "weight", False]
            return lambda: torch.ops.aten.convolution_backward(
                y, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, mask
            )

        yield f"forward {name}", "PyTorch", forward
        yield f"data gradient {name}", "PyTorch", lambda gradient=gradient: gradient("data")
        yield f"weight gradient {name}", "PyTorch", lambda gradient=gradient: gradient("weight")
