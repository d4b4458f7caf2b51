"""Clients that speak plain HTTP on this machine."""

from __future__ import annotations

import ssl

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""What they verify with: without it each of them reads all certificates of the machine first."""
