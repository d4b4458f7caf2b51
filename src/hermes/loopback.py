"""Requests from this machine: which addresses and `Host` headers name it, who needs no key, and how a server proves
that it wrote a file, by a secret in the file that is never sent."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

HOST = re.compile(r"(?:\[(?P<literal>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z.-]+))(?::[0-9]{1,5})?")
OWN_SITES = ("none", "same-origin")
"""Values of Sec-Fetch-Site for requests that no foreign page made: typed by a person, or from a page of the same
server."""


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)  # asked with every request, and nearly always the same
def names_loopback(header: str | None) -> bool:
    """Return True if a `Host` header names this machine. A missing or malformed one does not: a web page whose name
    resolves to this machine must find no form that passes."""
    return is_loopback(read_host(header))


def read_host(header: str | None) -> str:
    """Return the name or address in a `Host` header, without the port; "" if the header is missing or malformed."""
    found = HOST.fullmatch(header or "")
    return "" if found is None else found["literal"] or found["name"]


def find_strangeness(headers: Mapping[str, str]) -> str | None:
    """Return the reason to refuse a request that needs no key, or None. Only programs on this machine are answered, and
    no web page, whatever name it uses."""
    # Requests for a page's images and links have no Origin; browsers name their site instead.
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in OWN_SITES:
        return "web pages are not answered"
    if not names_loopback(headers.get("host")):
        return "only this machine is answered, and the request's `Host` does not name it (127.0.0.1, localhost)"
    return None


def read_bearer(authorization: str | None) -> str:
    """Return the key in an `Authorization` header; "" for none, or for another scheme."""
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def shows_key(authorization: str | None, key: str) -> bool:
    """Return True if an `Authorization` header has this key. The comparison takes constant time."""
    given = read_bearer(authorization)
    return given != "" and hmac.compare_digest(given.encode(), key.encode())


def is_loopback_url(url: str) -> bool:
    """Return True if a URL leads to this machine; such requests bypass any proxy."""
    return is_loopback(urlsplit(url).hostname or "")


PRIVATE_DOMAINS = ("arpa", "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost")
"""Top-level labels that no public name has."""


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
"""Request header with the challenge, and response header with the proof."""
CHALLENGE_CHARS = 128


def prove(known: str, challenge: str) -> str:
    """Return the proof for a challenge, which needs the secret `known`."""
    return hmac.new(known.encode(), challenge.encode(), "sha256").hexdigest()


def is_proof(given: str, known: str, challenge: str) -> bool:
    """Return True if the proof is right. The comparison takes constant time."""
    return hmac.compare_digest(given.encode(), prove(known, challenge).encode())
