"""The memory server's part of `hermes doctor`: a running server is asked for its health."""

from __future__ import annotations

from collections.abc import Iterator

from hermes.doctor import Finding
from hermes.errors import HomeError, SettingsError
from hermes.home import Home
from hermes.owner.server import read_server

CHECK = "server"
MORE = "`hermes memory status` shows details"


def check_server(home: Home) -> Iterator[Finding]:
    """Report the health of a running memory server. Yields nothing if none runs: it starts on demand."""
    try:
        server = read_server(home)
    except (HomeError, SettingsError):
        return  # the home's files are unreadable: other checks report that
    if server["problem"]:
        yield Finding(CHECK, "fail", server["problem"])
    elif server["running"]:
        state = server["health"].get("status", "silent")
        where = f"the memory server at {server['url']}"
        is_well = state == "ok"
        yield Finding(CHECK, "ok" if is_well else "fail", f"{where}: {state}", "" if is_well else MORE)
