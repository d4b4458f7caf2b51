"""This machine, as addresses and as `Host` headers name it."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

HOST = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z.-]+))(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)  # asked with every request, and nearly always the same
def names_loopback(header: str | None) -> bool:
    """Whether a `Host` header names this machine. One that is missing, or that nobody can read, does not: a web page
    whose name was turned to this machine must find no form of it that passes."""
    found = HOST.fullmatch(header or "")
    return found is not None and is_loopback(found["literal"] or found["name"])


def is_loopback_url(url: str) -> bool:
    """Whether a URL leads to this machine: what is sent there goes past any proxy."""
    return is_loopback(urlsplit(url).hostname or "")
