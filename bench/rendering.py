"""Measures the rendering in a terminal: the share of a core for a reply of 200 tokens a second, and Enter on a long
paste."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.table import Row, report, summarise
from hermes.types import Json
from tests.cli.screen import ENTER, Screen

RUN_COUNT = 3
TOKENS_PER_SECOND = 200
"""Rate of the reply, with four characters per token."""
SECTION = """## Section {number}

Sorting **large** files takes *memory*, time and a `compare()`; [the manual](https://example.org/sort) says which, and
a plan helps: read what fits, sort it, write it, then merge what was written, which is what databases do every day.

1. Read a **chunk** that fits into memory.
2. Sort it, and write it to a file of its own.

```python
def merge(parts: list[Path]) -> None:
    for part in parts:
        print(part.name)
```

| way | cost | good for |
|-----|-----:|----------|
| merge sort | 1,234 | files that do not fit into memory, as **databases** have them |
| quick sort | 20 | what fits |

"""
FUNCTION = '''    def part_{number}(self, lines: list[str]) -> int:
        """Count what is left of the lines.

        Those that are blank do not count, nor do comments.
        """
        left = [line for line in lines if line.strip() and not line.startswith("#")]
        return len(left) + {number}  # and so many more

'''
PART_COUNT = 12
REPLY = "".join(SECTION.format(number=number) for number in range(PART_COUNT))
CODE = f"```python\nclass Count:\n{''.join(FUNCTION.format(number=number) for number in range(4 * PART_COUNT))}```\n"
PASTE = "".join(f"line {number}: {'words ' * 8}\n" for number in range(2500))


def run() -> None:
    """Measure and print."""
    shares = [_share_of_core(REPLY, "Section 0", f"Section {PART_COUNT - 1}") for _ in range(RUN_COUNT)]
    of_code = [_share_of_core(CODE, "def part_0", f"def part_{4 * PART_COUNT - 1}") for _ in range(RUN_COUNT)]
    pastes = [_time_paste() for _ in range(RUN_COUNT)]
    rows: list[Row] = [
        summarise("CPU per second of a 200 tokens/s stream", shares),
        summarise("the same, of code in one block", of_code),
        summarise(f"Enter on a paste of {len(PASTE) // 1000} KB, until shown", pastes),
    ]
    report("Rendering: hermes chat at a terminal", rows)


@contextmanager
def _chat(answers: list[Json]) -> Iterator[Screen]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"answers": answers, "then": {"says": {"text": "Done."}}}))
        with subprocess.Popen(
            [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                port = json.loads(server.stdout.readline())["port"]
                endpoint = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "HERMES_MODEL": "loop"}
                with Screen("chat", env={**endpoint, "HERMES_HOME": folder}, columns=100, patience=120) as screen:
                    yield screen.wait_for_prompt()
            finally:
                server.kill()


def _share_of_core(reply: str, first: str, last: str) -> float:
    """Return the program's CPU seconds per second of reply, between two of its words."""
    with _chat([{"says": {"text": reply, "piece": 4, "pause": 1 / TOKENS_PER_SECOND}}]) as screen:
        screen.type("go" + ENTER)
        screen.wait_for(first)
        began, used = time.monotonic(), _cpu(screen.process.pid)
        screen.wait_for(last)
        return (_cpu(screen.process.pid) - used) / (time.monotonic() - began)


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _time_paste() -> float:
    with _chat([]) as screen:
        screen.type(f"\x1b[200~{PASTE}\x1b[201~")
        screen.wait(lambda screen: "lines]" in screen.prompt)
        began = time.monotonic()
        screen.type(ENTER)
        screen.wait(lambda screen: screen.prompt == "›")
        return time.monotonic() - began
