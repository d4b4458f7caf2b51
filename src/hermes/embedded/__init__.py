"""The memory server as a background process: how to find, start and stop it.

    connect ── rendezvous file ── does its server prove its identity? ── address and key
        └── no file, or a dead server's ── start, under a lock ── wait for the new server's rendezvous

    server ── the folder's lock, for life ── answers ── publishes its rendezvous ── withdraws it ── ends

Nothing of the server is imported here: clients need only an address and a key.
"""
