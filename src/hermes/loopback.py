"""This machine, as addresses and `Host` headers name it, who may speak to a server on it, and how that server shows
that it is the one that wrote a file: it knows a text in it, which is never sent."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

HOST = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z.-]+))(?::[0-9]{1,5})?")
OWN_SITES = ("none", "same-origin")
"""What browsers say of a request that no foreign page made: a person typed it, or a page of the same server asks."""


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
    return is_loopback(read_host(header))


def read_host(header: str | None) -> str:
    """Return the name or address in a `Host` header, without the port; "" if the header is missing or malformed."""
    found = HOST.fullmatch(header or "")
    return "" if found is None else found["literal"] or found["name"]


def find_strangeness(headers: Mapping[str, str]) -> str | None:
    """Why a request that needs no key is refused all the same: only programs of this machine are answered, no web page,
    whatever name it gave this machine. None when nothing speaks against it."""
    # A page's pictures and links come without an Origin; browsers say of those where they come from.
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return "web pages are not answered"
    if not names_loopback(headers.get("host")):
        return "only this machine is answered, and the request's `Host` does not name it (127.0.0.1, localhost)"
    return None


def read_bearer(authorization: str | None) -> str:
    """The key in an `Authorization` header; empty where there is none, or another kind of it."""
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def shows_key(authorization: str | None, key: str) -> bool:
    """Whether an `Authorization` header has this key. How long it takes tells nothing about the key."""
    given = read_bearer(authorization)
    return given != "" and hmac.compare_digest(given.encode(), key.encode())


def is_loopback_url(url: str) -> bool:
    """Whether a URL leads to this machine: what is sent there goes past any proxy."""
    return is_loopback(urlsplit(url).hostname or "")


PRIVATE_DOMAINS = ("arpa", "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost")
"""Last labels that no public name has."""


def is_private_url(url: str) -> bool:
    """Return True if a URL leads to this machine or into a private network. Names are judged as written, not resolved:
    those without a dot or below a private domain are private."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        last = host.rpartition(".")[2]  # one with a digit in front is a short form of an address, such as 127.1
        return last == host or last in PRIVATE_DOMAINS or last[:1].isdigit()
    return not (getattr(address, "ipv4_mapped", None) or address).is_global


CHALLENGE, PROOF = "Hermes-Challenge", "Hermes-Proof"
"""The headers that ask and answer."""
CHALLENGE_CHARS = 128


def prove(known: str, challenge: str) -> str:
    """What only those who know the text can answer to a challenge."""
    return hmac.new(known.encode(), challenge.encode(), "sha256").hexdigest()


def is_proof(given: str, known: str, challenge: str) -> bool:
    """Whether it is the right answer; takes as long for a wrong one."""
    return hmac.compare_digest(given.encode(), prove(known, challenge).encode())
