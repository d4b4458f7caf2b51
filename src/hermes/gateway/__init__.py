"""The gateway: many people on many platforms reach the right conversation, once, in order, whatever crashes.

    platform ── intake (who may talk) ── inbox (committed before the ack) ── lane (one per chat, held as a lease)
             ── turn ── reply + outbound + inbox settled (one transaction) ── delivery ── platform

A platform only translates. A message is acknowledged only after its commit.
"""
