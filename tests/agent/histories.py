"""Hypothesis strategies for any history that a store could hold."""

from __future__ import annotations

from hypothesis import strategies as st

from hermes.types import LiveView, Message, ToolCall

IDS = st.sampled_from(["", "a", "b", "a_1", "call"])
TEXT = st.one_of(st.none(), st.just(""), st.text(max_size=12))
CALLS = st.lists(
    st.builds(ToolCall, IDS, st.sampled_from(["memory", "x"]), st.sampled_from(["", "{}", '{"a": 1}', "{a", "[1]"])),
    max_size=3,
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, ...]:
    """Generate any sequence that a store could hold: crash leftovers, orphans, unknown roles, repeated ids."""
    kinds = draw(st.lists(st.sampled_from(["user", "assistant", "tool", "system", "session_meta"]), max_size=12))
    return tuple(
        Message(
            id=number,
            session_id="s",
            role=role,
            content=draw(TEXT),
            timestamp=0.0,
            tool_calls=tuple(draw(CALLS)) if role in ("assistant", "user") else (),
            tool_call_id=draw(st.one_of(st.none(), IDS)) if role == "tool" else None,
        )
        for number, role in enumerate(kinds, start=1)
    )


def view(head: tuple[Message, ...], summary: str | None, tail: tuple[Message, ...]) -> LiveView:
    return LiveView("s", 1 if summary is not None else 0, head, summary, tail)
