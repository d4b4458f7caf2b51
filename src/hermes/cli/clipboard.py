"""Text for the clipboard: by the terminal itself (OSC 52), which works over SSH too, and by a program where one is."""

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

LARGEST = 1_000_000
"""Bytes that are copied at most."""
LARGEST_SEQUENCE = 100_000
"""Characters of the sequence that terminals are known to take."""
PATIENCE = 3.0
"""Seconds that a program has to take the text."""


async def copy_text(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Copy a text without its control characters; how that was done. Raises UsageError where nothing can take it."""
    data = printable(text).encode("utf-8", "replace")
    if len(data) > LARGEST:
        raise UsageError(f"that is more than {LARGEST:,} bytes", hint="`/save FILE` writes it to a file")
    taken = await _give_to_program(data, env)
    asked = _ask_terminal(data, env)
    if taken is not None:
        return f"is in the clipboard ({taken})"
    if asked:
        return "was given to the terminal for the clipboard (OSC 52, which some terminals do not take)"
    raise UsageError("nothing here can take it", hint="`/save FILE` writes it to a file")


def _ask_terminal(data: bytes, env: Mapping[str, str]) -> bool:
    encoded = base64.b64encode(data).decode()
    if not sys.stdout.isatty() or env.get("TERM", "dumb") in ("dumb", "linux") or len(encoded) > LARGEST_SEQUENCE:
        return False
    sys.stdout.write(f"\x1b]52;c;{encoded}\a")
    sys.stdout.flush()
    return True


async def _give_to_program(data: bytes, env: Mapping[str, str]) -> str | None:
    """The program that took it, or None."""
    for command in _programs(env):
        if shutil.which(command[0], path=env.get("PATH")) is None:
            continue
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        try:
            async with asyncio.timeout(PATIENCE):
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
