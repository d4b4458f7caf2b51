"""Export and import of a Honcho workspace: of our server with ids and times, of any other through its public API.

    export:  source (own or public) ── pages ── file.part ── file
    import:  file ── checked ── chunks ── target (own or public), with a file of the progress

Nothing here imports the memory server; its abilities are queried over HTTP.
"""
