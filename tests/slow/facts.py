"""Tells an agent ten facts in natural language, in short sessions, and counts those in its notes afterwards.

python -m tests.slow.facts HOME BASE_URL   # prints the notes, and how many facts are in them
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.real_model import WINDOW_TOKENS

SILENCE_SECONDS = 1800
"""Read timeout for a model, which may need minutes for a long request beside other work."""

SESSIONS = (
    (
        ("I collect stamps from Malta", ("stamp",)),
        ("My sister Ada lives in Oslo", ("ada", "oslo")),
        ("I am allergic to peanuts", ("peanut",)),
        ("My dog is called Rufus", ("rufus",)),
    ),
    (
        ("I work as a nurse in Leeds", ("nurse",)),
        ("Our database runs on port 5433", ("5433",)),
        ("I prefer short answers", ("short",)),
    ),
    (
        ("My birthday is on the 3rd of May", ("may",)),
        ("I play the cello in an orchestra", ("cello",)),
        ("We deploy the shop every Thursday", ("thursday",)),
    ),
)


def tell_facts(home: Path, base_url: str, more: str = "") -> None:
    """Send the facts, each session as a separate conversation with a turn per line; work due at its end may run with
    the next one. `more` is more of config.yaml."""
    home.mkdir(parents=True, exist_ok=True)
    model = f"model:\n  base_url: {base_url}\n  context_length: {WINDOW_TOKENS}\n  silence: {SILENCE_SECONDS}\n"
    settings = f"{model}agent:\n  max_steps: 6\n"
    (home / "config.yaml").write_text(settings + more, encoding="utf-8")
    said = ["".join(f"{text}\n" for text, _ in facts) for facts in SESSIONS]
    for lines in [*said, "Good night\n"]:
        subprocess.run(
            [sys.executable, "-m", "hermes", "chat"],
            input=lines,
            env={**os.environ, "HERMES_HOME": str(home), "PYTHONUTF8": "1"},
            text=True,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def read_notes(home: Path) -> str:
    """Return both notes unchanged."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(home.glob("memories/*.md")))


def noted(notes: str) -> list[str]:
    """Return the facts in the notes: all distinguishing words of a fact must be in one line."""
    lines = notes.lower().splitlines()
    facts = [fact for session in SESSIONS for fact in session]
    return [text for text, words in facts if any(all(word in line for word in words) for line in lines)]


if __name__ == "__main__":
    tell_facts(Path(sys.argv[1]), sys.argv[2])
    found = read_notes(Path(sys.argv[1]))
    sys.stdout.write(f"{found}\n{len(noted(found))} of 10\n")
