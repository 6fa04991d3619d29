"""Logits of the served model as float32: for some tokens, then for one more at a time from the cache.

    python logits.py LIBRARY MODEL PRECISION PROMPT MORE, tokens joined by commas, precision an id or "" for the model's own
"""

import sys

from story_model import LAYERS, StoryModel

library, model, precision, prompt, more = sys.argv[1:]
precisions = [int(precision)] * LAYERS if precision else None
story = StoryModel(library, model, threads=2)
cache = None
for ids in [prompt.split(","), *([each] for each in more.split(","))]:
    logits, cache = story.run([int(each) for each in ids], cache, precisions)
    sys.stdout.buffer.write(logits.tobytes())
