"""Clients that speak plain HTTP on this machine."""

from __future__ import annotations

import ssl

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""An SSL context without certificates, since loading all of the machine's is slow."""
