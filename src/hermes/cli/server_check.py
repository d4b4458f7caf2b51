"""How the memory server of this machine is, for `hermes doctor`: one that runs is asked for its health."""

from __future__ import annotations

from collections.abc import Iterator

from hermes.doctor import Finding
from hermes.errors import HomeError, SettingsError
from hermes.home import Home
from hermes.owner.server import read_server

CHECK = "server"
MORE = "`hermes memory status` says more"


def check_server(home: Home) -> Iterator[Finding]:
    """What it says of itself. Nothing is started, and nothing is said where none runs: it starts when it is needed."""
    try:
        server = read_server(home)
    except (HomeError, SettingsError):
        return  # a file of the home that says where memory is cannot be read: other checks say so
    if server["problem"]:
        yield Finding(CHECK, "fail", server["problem"])
    elif server["running"]:
        state = server["health"].get("status", "silent")
        where = f"the memory server at {server['url']}"
        is_well = state == "ok"
        yield Finding(CHECK, "ok" if is_well else "fail", f"{where}: {state}", "" if is_well else MORE)
