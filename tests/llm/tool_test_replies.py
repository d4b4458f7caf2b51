"""Replies of models in the self-test of tools."""

from __future__ import annotations

from hermes.llm.events import Reply
from hermes.llm.tool_use import PHONE_NUMBER
from hermes.types import ToolCall


def calls(*named: tuple[str, str]) -> Reply:
    return Reply(tool_calls=tuple(ToolCall(f"c{place}", *call) for place, call in enumerate(named)))


LOOKS_UP = calls(("find_contact", '{"name": "Ada"}'))
SENDS = calls(("send_text", f'{{"number": "{PHONE_NUMBER}", "text": "home at six"}}'))
INVENTS = calls(("find_contact", '{"name": "Ada"}'), ("send_text", '{"number": "1234567890", "text": "x"}'))
