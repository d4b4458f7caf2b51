"""What a session has spent, in words."""

from __future__ import annotations

from hermes.store.usage import SessionUsage
from hermes.types import Spent

WHAT_COUNTS = "Counted are its turns, summaries, reviews, sub-agents and title."
NOTHING = "No model was asked in this session yet."


def describe_length(counted: SessionUsage, compressions: int) -> str:
    """How long a session is."""
    return f"{counted.turns:,} {'turn' if counted.turns == 1 else 'turns'}, {compressions} compressions"


def describe_usage(counted: SessionUsage) -> list[str]:
    """What it has spent, line by line."""
    spent, elsewhere = counted.spent, counted.elsewhere
    lines = [f"{name}: {_describe(one)}" for name, one in spent.items()]
    if len(spent) > 1:
        lines.append(f"in all: {_describe(sum(spent.values(), Spent()))}")
    if elsewhere is not None:
        lines.append(f"another version counted {elsewhere.prompt_tokens:,} in, {elsewhere.completion_tokens:,} out")
    return [*lines, WHAT_COUNTS if spent else NOTHING]


def _describe(spent: Spent) -> str:
    about = "~" if spent.estimated else ""
    cached = f" ({spent.cached_tokens:,} of them from its cache)" if spent.cached_tokens else ""
    told = f"{about}{spent.prompt_tokens:,} tokens in{cached}, {about}{spent.completion_tokens:,} out"
    asked = "1 request" if spent.requests == 1 else f"{spent.requests:,} requests"
    if not spent.estimated:
        return f"{asked}, {told}"
    which = "all" if spent.estimated == spent.requests else f"{spent.estimated:,}"
    return f"{asked}, {told}; {which} of them estimated, since the endpoint does not say"
