"""A converted language model in ONNX Runtime's Python package, with mxattn's attention.

    python story_model.py libmxattn_ort.so fused.onnx 20 40 2067 323

prints the tokens that follow those given. Needs onnxruntime and numpy.
"""

import sys

import numpy as np
import onnxruntime

LAYERS = 8
KV_HEADS = 2
HEAD_SIZE = 64


class StoryModel:
    """examples/models/story-llama after `mxattn convert`, one sequence at a time."""

    def __init__(self, library: str, model: str, threads: int = 1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(library)
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def run(self, ids, cache=None, precision=None):
        """Logits [tokens, vocabulary] for tokens after a cache (or none), and the cache for those that follow.

        precision: ids of the layers (0 f32, 1 mxfp6, 2 mxfp4) for this run; default what the model was converted with.
        """
        past = cache or {
            f"{layer}.{part}": np.zeros((1, KV_HEADS, 0, HEAD_SIZE), np.float32)
            for layer in range(LAYERS)
            for part in ("key", "value")
        }
        before = past["0.key"].shape[2]
        feeds = {f"past_key_values.{name}": value for name, value in past.items()}
        feeds["input_ids"] = np.array([ids], np.int64)
        feeds["attention_mask"] = np.ones((1, before + len(ids)), np.int64)
        feeds["position_ids"] = np.arange(before, before + len(ids), dtype=np.int64)[None]
        if precision is not None:
            feeds["mxattn.precision"] = np.array(precision, np.int32)
        outputs = dict(zip(self.names, self.session.run(None, feeds)))
        return outputs.pop("logits")[0], {name.removeprefix("present."): value for name, value in outputs.items()}

    def generate(self, ids, count):
        """The likeliest `count` tokens after `ids`."""
        generated, cache = [], None
        while len(generated) < count:
            logits, cache = self.run(generated[-1:] or ids, cache)
            generated.append(int(logits[-1].argmax()))
        return generated


if __name__ == "__main__":
    library, model, count, *ids = sys.argv[1:]
    print(*StoryModel(library, model).generate([int(each) for each in ids], int(count)))
