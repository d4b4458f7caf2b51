"""Installation commands for packages that a platform needs."""

from __future__ import annotations

import sys
from pathlib import Path

DISTRIBUTION = "hermes-memory-host"
DISCORD = ("discord.py>=2.5,<3",)
SLACK = ("slack-sdk>=3.33,<4", "aiohttp>=3.9,<4")


def how_to_install(requirements: tuple[str, ...], prefix: Path | None = None) -> str:
    """Return the command that adds packages to this environment, for pipx, uv or pip."""
    root = Path(sys.prefix) if prefix is None else prefix
    quoted = [f"'{one}'" for one in requirements]
    if "pipx" in root.parts:
        return f"pipx inject {DISTRIBUTION} {' '.join(quoted)}"
    if (root / "uv-receipt.toml").exists():
        return f"uv tool install {DISTRIBUTION} {' '.join(f'--with {one}' for one in quoted)}"
    installer = f"{sys.executable} -m pip install"
    if _is_of_uv(root):
        installer = f"uv pip install --python {root}"
    return f"{installer} {' '.join(quoted)}"


def _is_of_uv(root: Path) -> bool:
    """Return True for an environment made by uv, which has no pip."""
    try:
        lines = (root / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)
