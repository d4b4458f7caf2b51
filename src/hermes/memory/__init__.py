"""Memory across sessions: the built-in notes, and one external provider behind a seam.

    turn ──before_turn──> provider.prefetch (bounded) ──> recalled text, fenced, for this one request
    turn ──after_turn───> provider.sync_turn (off the turn)

`caller.Memory` is the only thing that calls a provider. It runs in a thread of its own (`isolation`), so that a hook
that raises, hangs or returns nonsense costs a turn its deadline at most, and one line that names it.
"""
