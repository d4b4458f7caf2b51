"""The memory server as a background process of its own: how one finds it, starts it and asks it to end.

    connect ── rendezvous file ── does its server prove itself? ── address and key
                    └── none, or a dead one's ── start, under a lock ── wait for the rendezvous of the new one

    server ── the folder's lock, for life ── answers ── publishes its rendezvous ── withdraws it ── ends

Nothing of the server is imported here: whoever talks to it needs an address and a key.
"""
