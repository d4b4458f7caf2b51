"""A model on loopback that answers `echo: <last message>`, with a delay for summaries."""

from __future__ import annotations

import json

from hermes.compression.summarise import PROMPT
from tests.llm.loopback import Answer, LoopbackServer, Received, says


class EchoModel(LoopbackServer):
    """An HTTP server that answers any number of requests."""

    def __init__(self, *, summary: float, delay: float, pause: float) -> None:
        super().__init__(pages={"/v1/models": Answer(body=json.dumps({"data": [{"id": "echo"}]}))})
        self._summary, self._delay, self._pause = summary, delay, pause

    def _choose(self, received: Received) -> Answer:
        if received.method == "GET":
            return super()._choose(received)
        messages = received.body["messages"]
        if messages[0]["role"] == "system" and messages[0]["content"].startswith(PROMPT[:40]):
            return says("They talked about stamps.", delay=self._summary)
        said = [message["content"] for message in messages if message["role"] == "user"][-1]
        usage = {"prompt_tokens": 7, "completion_tokens": 5}
        return says(f"echo: {said}", piece=max(8, len(said) // 50), delay=self._delay, pause=self._pause, usage=usage)
