"""Memory across sessions: the built-in notes, and one external provider behind an interface.

    turn ──its commits──> outbox rows ──any process, later──> plugin.deliver
    turn ──recall──> session.recall (within a deadline) ──> recalled text, fenced, for this one request
    turn ──its end──> session.prepare (in the background) ──> prepared results for the next recall

A turn uses only `caller.Memory`. The provider's plugin runs in a thread of its own (`plugin_thread`): a hook that
raises, hangs or returns nonsense costs a turn its deadline at most, and the log names it.
"""
