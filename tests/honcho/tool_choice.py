"""The tool that a model picks for each of a person's wishes, of Honcho's five.

python -m tests.honcho.tool_choice BASE_URL     # prints each pick, and how many were right
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import httpx

from hermes.honcho.config_file import Document
from hermes.honcho.configuration import resolve
from hermes.honcho.session import BLOCKS, tool_specs
from hermes.types import Json, ToolSpec

WANTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Please remember that I prefer tea to coffee.", ("honcho_conclude",)),
    ("Keep in mind for good: my flight leaves on 3 May.", ("honcho_conclude",)),
    ("Delete the fact with the id k3x9 from your memory.", ("honcho_conclude",)),
    ("Look up in your memory when my sister's birthday is.", ("honcho_search",)),
    ("Search what I told you about my boat.", ("honcho_search",)),
    ("Find everything you remember about the word cello.", ("honcho_search",)),
    ("Show me my profile card.", ("honcho_profile",)),
    ("What are the key facts on my card?", ("honcho_profile",)),
    ("Give me all that you know for this conversation, with its summary.", ("honcho_context",)),
    ("What is the summary of our conversation, and its newest messages?", ("honcho_context",)),
    ("Think it over with your memory: why might I dislike long meetings?", ("honcho_reasoning",)),
    ("Judging by all you remember of me, what present would I like best?", ("honcho_reasoning",)),
)


def pick(base_url: str, text: str, specs: Sequence[ToolSpec], block: str) -> str:
    """Return the name of the first called tool; "" for none."""
    tools = [
        {"type": "function", "function": {"name": s.name, "description": s.description, "parameters": s.parameters}}
        for s in specs
    ]
    body = {
        "messages": [{"role": "system", "content": block}, {"role": "user", "content": text}],
        "tools": tools,
        "temperature": 0,
        "max_tokens": 200,
    }
    answer = httpx.post(f"{base_url}/chat/completions", json=body, timeout=600, trust_env=False)
    answer.raise_for_status()
    calls: list[Json] = answer.json()["choices"][0]["message"].get("tool_calls") or []
    return str(calls[0]["function"]["name"]) if calls else ""


def count_right(base_url: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the number of right picks, and of all picks."""
    config = resolve(Document({}, {}, "hermes"), None, "hermes", {})
    picks = [(text, pick(base_url, text, tool_specs(config), BLOCKS["tools"])) for text, _ in WANTED]
    return sum(name in right for (_, name), (_, right) in zip(picks, WANTED, strict=True)), picks


if __name__ == "__main__":
    found, chosen = count_right(sys.argv[1])
    for asked, name in chosen:
        sys.stdout.write(f"{name or '-':<18} {asked}\n")
    sys.stdout.write(f"{found} of {len(WANTED)}\n")
