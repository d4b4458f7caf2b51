"""A process that compresses one session with a model on loopback: prints `ready`, waits for a line, prints the result.

python -m tests.compression.worker HOME SESSION MODEL_URL LEASE
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hermes.clock import SystemClock
from hermes.compression.compressor import Compressor
from hermes.compression.cut import CompressionPolicy
from hermes.db.leases import new_owner
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.logs import start_log
from hermes.store.store import Store
from tests.compression.conversations import WINDOW


async def work(home: Path, session_id: str, url: str, lease: float) -> None:
    start_log(home / "logs" / "agent.log")
    model = OpenAICompatible(url, "loop-1", context_length=WINDOW)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        compressor = Compressor(store, model, CompressionPolicy(WINDOW), owner=new_owner(), lease=lease)
        print("ready", flush=True)  # noqa: T201 - what the parent waits for
        await asyncio.to_thread(sys.stdin.readline)
        result = await compressor.compress(session_id)
        told = {"session_id": result.session_id, "outcome": result.outcome, "reason": result.reason}
        print(json.dumps(told), flush=True)  # noqa: T201
    await model.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
