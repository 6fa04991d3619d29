"""Writes attention-cases.json.gz: the ONNX project's own test cases for the Attention operator.

    pip install onnx && python test/models/attention-cases.py
"""

import base64
import gzip
import json
import pathlib
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

warnings.filterwarnings("ignore")


def tensor(name, array):
    array = np.asarray(array)
    return {
        "name": name,
        "type": str(array.dtype),
        "dims": list(array.shape),
        "data": base64.b64encode(array.tobytes()).decode(),
    }


def named(values, arrays):
    return [tensor(value.name, array) for value, array in zip(values, arrays)]


cases = []
for case in collect_testcases("Attention"):
    if not case.name.startswith("test_attention") or "expanded" in case.name:
        continue
    graph = case.model.graph
    inputs, outputs = case.data_sets[0]
    cases.append(
        {
            "name": case.name.removeprefix("test_"),
            "model": base64.b64encode(case.model.SerializeToString()).decode(),
            "inputs": named(graph.input, inputs),
            "outputs": named(graph.output, outputs),
        }
    )

path = pathlib.Path(__file__).with_name("attention-cases.json.gz")
path.write_bytes(gzip.compress(json.dumps(cases).encode(), 9, mtime=0))
print(f"{len(cases)} cases of onnx {onnx.__version__}")
