"""A workspace of a Honcho server as a file, and back: ours with ids and times, any other through its public API.

    export:  source (own or public) ── pages ── file.part ── file
    import:  file ── checked ── chunks ── target (own or public), with a note of how far it came

Nothing here knows the memory server from inside: what it can do is asked of it.
"""
