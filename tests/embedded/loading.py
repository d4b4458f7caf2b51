"""Return the modules that a program imports."""

from __future__ import annotations

import subprocess
import sys

OF_THE_SERVER = {"fastapi", "sqlalchemy", "numpy", "uvicorn", "wordllama", "alembic", "hermes.memory_server"}
PRINT = "import sys; print('\\n'.join(sys.modules))"


def loaded(program: str, *arguments: str) -> set[str]:
    """Return the names of all modules that are loaded after a program has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{PRINT}", *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())
