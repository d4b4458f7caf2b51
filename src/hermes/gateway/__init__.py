"""The gateway: many people on many platforms reach the right conversation, once, in order, whatever crashes.

    platform ── intake (who may talk) ── inbox (committed before the ack) ── lane (one per chat, held as a lease)
             ── turn ── reply + outbound + inbox settled (one transaction) ── delivery ── platform

A platform only translates. Everything that must not get lost is in the store before anyone is told so.
"""
