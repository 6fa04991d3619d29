"""Checks a config.pbtxt against Triton's schema and the inputs and outputs of the model it is for."""

import sys

import onnxruntime
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

config_path, library, model = sys.argv[1:]
with open(config_path) as file:
    config = text_format.Parse(file.read(), model_config_pb2.ModelConfig())

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
types = {"tensor(int64)": model_config_pb2.TYPE_INT64, "tensor(float)": model_config_pb2.TYPE_FP32}


def of_model(values):
    return [(v.name, types[v.type], [d if isinstance(d, int) else -1 for d in v.shape]) for v in values]


def of_config(values):
    return [(v.name, v.data_type, list(v.dims)) for v in values]


assert config.name and config.backend == "onnxruntime" and config.max_batch_size == 0
assert list(config.model_operations.op_library_filename) == ["/opt/mxattn/libmxattn_ort.so"]
assert of_config(config.input) == of_model(session.get_inputs())
assert of_config(config.output) == of_model(session.get_outputs())
