"""A process that adds entries to the notes, and prints each once it is saved.

python -m tests.memory.writer HOME NAME COUNT LIMIT
"""

from __future__ import annotations

import sys
from pathlib import Path

from hermes.memory.notes import Notes
from hermes.scope import Owner


def main() -> None:
    home, name, count, limit = sys.argv[1:]
    notes = Notes(Path(home), Owner(), {"memory": int(limit), "user": int(limit)})
    for number in range(int(count)):
        notes.add("memory", f"{name} fact {number}")
        sys.stdout.write(f"{name} fact {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
