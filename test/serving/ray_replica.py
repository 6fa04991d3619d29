"""Runs what ray_serve.py deploys, without a cluster: `ray` is a stand-in. Prints the answer."""

import asyncio
import json
import sys
import types

prompt = [int(each) for each in sys.argv[1].split(",")]


def deployment(**_options):
    def deploy(replica):
        replica.bind = classmethod(lambda cls, *arguments: (cls, arguments))
        return replica

    return deploy


serve = types.SimpleNamespace(deployment=deployment)
sys.modules["ray"] = types.SimpleNamespace(serve=serve)

import ray_serve  # noqa: E402, after the stand-in


class Request:
    async def json(self):
        return {"ids": prompt, "count": 5}


replica, arguments = ray_serve.app
print(json.dumps(asyncio.run(replica(*arguments)(Request()))))
