"""The example plugin of docs/memory-providers.md, read from the page."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "memory-providers.md"


def example() -> str:
    """Return the source of the first plugin on the page."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def install(home: Path, name: str = "diary", source: str | None = None) -> None:
    """Install a plugin in a home and choose it."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(example() if source is None else source, encoding="utf-8")
    (home / "config.yaml").write_text(f"memory:\n  provider: {name}\n", encoding="utf-8")
