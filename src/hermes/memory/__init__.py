"""Memory across sessions: the built-in notes, and one external provider behind a seam.

    turn ──its commits──> outbox rows ──any process, later──> plugin.deliver
    turn ──recall──> session.recall (within a deadline) ──> recalled text, fenced, for this one request
    turn ──its end──> session.prepare (off the turn) ──> what the next recall finds ready

`caller.Memory` is all that a turn knows of a provider, whose plugin runs on a thread of its own (`plugin_thread`): a
hook that raises, hangs or returns nonsense costs a turn its deadline at most, and is named in the log.
"""
