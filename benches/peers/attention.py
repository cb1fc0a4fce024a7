"""Attention: PyTorch's scaled_dot_product_attention in f32."""

GPU = [
    ((1, 32, 32, 2048, 2048, 64), True),
    ((1, 32, 32, 2048, 2048, 64), False),
    ((1, 32, 8, 4096, 4096, 128), True),
    ((1, 32, 32, 4096, 4096, 128), True),
    ((1, 32, 32, 4096, 4096, 128), False),
    ((4, 32, 8, 1, 8192, 128), False),
]
CPU = [
    ((1, 8, 8, 1024, 1024, 64), True),
    ((1, 8, 8, 1024, 1024, 64), False),
    ((1, 8, 2, 1024, 1024, 128), True),
    ((4, 8, 2, 1, 4096, 64), False),
]


def cases(bench):
    torch = bench.torch
    if torch is None:
        return
    from torch.nn.functional import scaled_dot_product_attention

    # A function of its own: the cases are run after the list of them is complete.
    def pair(batch, heads, kv_heads, queries, keys, width, causal):
        def inputs():
            new = lambda *shape: torch.rand(*shape, device=bench.device).sub_(0.5)
            return (
                new(batch, heads, queries, width),
                new(batch, kv_heads, keys, width),
                new(batch, kv_heads, keys, width),
            )

        def attend(q, k, v):
            return scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=heads != kv_heads
            )

        def forward():
            q, k, v = inputs()

            def call():
                with torch.no_grad():
                    attend(q, k, v)

            return call

        def both():
            q, k, v = (x.requires_grad_() for x in inputs())
            d_out = torch.rand(batch, heads, queries, width, device=bench.device)
            return lambda: torch.autograd.grad(attend(q, k, v), (q, k, v), d_out)

        return forward, both

    for shape, causal in GPU if bench.gpu else CPU:
        size = "x".join(str(n) for n in shape) + (" causal" if causal else "")
        forward, both = pair(*shape, causal)
        yield f"forward {size}", "torch", forward
        if shape[3] > 1:
            yield f"forward and backward {size}", "torch", both
