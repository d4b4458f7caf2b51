"""Honcho as the memory provider: Honcho Cloud, a self-hosted server, or our own memory server.

    honcho.json + environment ── configuration ──> who is who (identity), where it lands (names), which server

It is a plugin like any other: nothing outside this room imports it, and the host works without the folder.
"""
