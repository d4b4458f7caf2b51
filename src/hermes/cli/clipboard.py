"""Copying to the clipboard: by the terminal (OSC 52, which works over SSH) and by a clipboard program if installed."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping

from hermes.cli.output import printable
from hermes.errors import UsageError

MAX_BYTES = 1_000_000
"""Longer texts are refused."""
MAX_SEQUENCE_CHARS = 100_000
"""Longest OSC 52 sequence that common terminals accept, in characters."""
COPY_TIMEOUT_SECONDS = 3.0
"""Time limit for a clipboard program."""


async def copy_text(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Copy a text without its control characters and return how it was copied. Raises UsageError if neither way
    works."""
    data = printable(text).encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        raise UsageError(f"the text is larger than {MAX_BYTES:,} bytes", hint="Use `/save FILE` instead")
    taken = await _give_to_program(data, env)
    asked = _ask_terminal(data, env)
    if taken is not None:
        return f"is in the clipboard ({taken})"
    if asked:
        return "was sent to the terminal's clipboard (OSC 52; some terminals ignore it)"
    raise UsageError("no clipboard program is installed here", hint="Use `/save FILE` instead")


def _ask_terminal(data: bytes, env: Mapping[str, str]) -> bool:
    encoded = base64.b64encode(data).decode()
    if not sys.stdout.isatty() or env.get("TERM", "dumb") in ("dumb", "linux") or len(encoded) > MAX_SEQUENCE_CHARS:
        return False
    sys.stdout.write(f"\x1b]52;c;{encoded}\a")
    sys.stdout.flush()
    return True


async def _give_to_program(data: bytes, env: Mapping[str, str]) -> str | None:
    """Return the name of the program that accepted the text, or None."""
    for command in _programs(env):
        if shutil.which(command[0], path=env.get("PATH")) is None:
            continue
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        try:
            async with asyncio.timeout(COPY_TIMEOUT_SECONDS):
                await process.communicate(data)
        except TimeoutError:
            process.kill()
            await process.wait()
            continue
        if process.returncode == 0:
            return command[0]
    return None


def _programs(env: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if env.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if env.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")
