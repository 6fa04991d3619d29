"""story_model.py behind Ray Serve: POST {"ids": [40, 2067, 323], "count": 20} gives {"ids": [...]}.

    MXATTN_LIBRARY=.../libmxattn_ort.so MXATTN_MODEL=.../fused.onnx serve run ray_serve:app
"""

import os

from ray import serve
from story_model import StoryModel

THREADS = 2


# A replica has as many processors as its session has threads.
@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": THREADS})
class Story:
    def __init__(self, library: str, model: str):
        self.model = StoryModel(library, model, THREADS)

    async def __call__(self, request):
        body = await request.json()
        return {"ids": self.model.generate(body["ids"], body["count"])}


app = Story.bind(os.environ["MXATTN_LIBRARY"], os.environ["MXATTN_MODEL"])
