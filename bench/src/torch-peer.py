"""Times PyTorch's attention in BF16 on a GPU. Prints a JSON object: milliseconds by kernel for each shape.

Shapes come as arguments: heads,kvHeads,queryLength,keyLength,headSize.
"""

import json
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def milliseconds(attention) -> float:
    for _ in range(5):
        attention()
    times = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(8):
            attention()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 8)
    return statistics.median(times)


results = {}
for shape in sys.argv[1:]:
    heads, kv_heads, queries, keys, size = map(int, shape.split(","))
    q = torch.randn(1, heads, queries, size, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, kv_heads, keys, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    results[shape] = {}
    for name, kernel in KERNELS.items():
        try:
            with sdpa_kernel(kernel):
                results[shape][name] = milliseconds(
                    lambda: scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)
                )
        except RuntimeError:
            continue
print(json.dumps(results))
