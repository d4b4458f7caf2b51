"""Honcho as the memory provider: Honcho Cloud, a self-hosted server, or the bundled memory server.

    honcho.json + environment ── configuration ──> who is who (identity), where it lands (names), which server

It is a plugin like any other: no other package imports it, and the host runs without this folder.
"""
