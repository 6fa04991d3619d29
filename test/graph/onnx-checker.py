"""Checks models with the ONNX project's own checker: every file named, with inference of shapes and types."""

import sys

import onnx

for path in sys.argv[1:]:
    onnx.checker.check_model(path, full_check=True)
print(len(sys.argv) - 1)
