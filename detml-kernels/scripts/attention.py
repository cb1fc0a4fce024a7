"""Attention in binary64 by PyTorch, gradients by its autograd.

    python attention.py > ../src/ops/attention/reference.txt

Each block is a case: its shape, then lines of `out`, `log_sum_exp`, `d_q`, `d_k` and `d_v`.
Inputs are integers modulo small numbers over powers of two, so that both sides make them exactly.
"""

import torch


def numbers(seed, *shape):
    n = 1
    for size in shape:
        n *= size
    values = [((i * 7919 + seed * 104729 + i * i * 31) % 1009 - 504) / 512 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def case(batch, heads, kv_heads, queries, keys, width, causal, factor):
    q = (numbers(1, batch, heads, queries, width) * factor).requires_grad_()
    k = numbers(2, batch, kv_heads, keys, width).requires_grad_()
    v = numbers(3, batch, kv_heads, keys, width).requires_grad_()
    group = heads // kv_heads
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) / width**0.5
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~seen, float("-inf"))
    out = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    out.backward(numbers(4, *out.shape))
    print("case", batch, heads, kv_heads, queries, keys, width, int(causal), factor)
    for name, x in [
        ("out", out),
        ("log_sum_exp", scores.logsumexp(-1)),
        ("d_q", q.grad),
        ("d_k", k.grad),
        ("d_v", v.grad),
    ]:
        print(name, *[f"{y:.9e}" for y in x.flatten().tolist()])


case(1, 2, 1, 5, 7, 4, True, 1)
case(2, 2, 2, 3, 4, 3, False, 4)
case(1, 1, 1, 2, 1100, 1, False, 8)
case(1, 1, 1, 3, 70, 8, True, 16)
