"""Ten facts told to an agent as people tell them, in short sessions, and how many of them are in its notes afterwards.

python -m tests.slow.facts HOME BASE_URL     # prints the notes, and how many facts are in them
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.real_model import WINDOW

BUSY = 1800
"""Seconds that a model may be silent: beside other work it reads a long request for minutes."""

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
    """Each session is a conversation of its own, a line a turn; what is due at its end may come with the next one.
    `more` is more of config.yaml."""
    home.mkdir(parents=True, exist_ok=True)
    settings = (
        f"model:\n  base_url: {base_url}\n  context_length: {WINDOW}\n  silence: {BUSY}\nagent:\n  max_steps: 6\n"
    )
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
    """Both notes, as they are."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(home.glob("memories/*.md")))


def noted(notes: str) -> list[str]:
    """The facts that the notes hold, as they were told: all that tells one from another is in one line."""
    lines = notes.lower().splitlines()
    facts = [fact for session in SESSIONS for fact in session]
    return [text for text, words in facts if any(all(word in line for word in words) for line in lines)]


if __name__ == "__main__":
    tell_facts(Path(sys.argv[1]), sys.argv[2])
    found = read_notes(Path(sys.argv[1]))
    sys.stdout.write(f"{found}\n{len(noted(found))} of 10\n")
