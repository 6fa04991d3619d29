"""Casts float32 numbers, read from standard input, with libraries that are not this one.

independent.py elements: per format of FORMATS, the code of every number, by ml_dtypes.
independent.py blocks:   per format and scale rule, E8M0 scales and codes of blocks of 32, by torchao.

Writes bytes to standard output; bfloat16 and float16 codes take two bytes, all others one.
"""

import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
numbers = np.frombuffer(sys.stdin.buffer.read(), dtype=np.float32)


def elements():
    import ml_dtypes

    names = "float8_e4m3fn float8_e5m2 float6_e2m3fn float6_e3m2fn float4_e2m1fn bfloat16".split()
    for dtype in [getattr(ml_dtypes, name) for name in names] + [np.float16]:
        yield numbers.astype(dtype).tobytes()


def blocks():
    import torch
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx

    data = torch.tensor(numbers.reshape(-1, 32))
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2, "fp6_e2m3", "fp6_e3m2", torch.float4_e2m1fn_x2]:
        for rule in ["FLOOR", "RCEIL", "EVEN"]:
            scales, codes = to_mx(data, dtype, 32, ScaleCalculationMode[rule])
            yield scales.view(torch.uint8).numpy().tobytes()
            yield codes.contiguous().view(torch.uint8).numpy().tobytes()


for part in {"elements": elements, "blocks": blocks}[sys.argv[1]]():
    sys.stdout.buffer.write(part)
