"""The conversation log: every session and message of a profile in one file, `state.db`.

    append ──> messages (never rewritten)          compression ──> one row beside them
                     └──────────── live_view (pure) ────────────┘ ──> what the model sees

`sessions` and `messages` keep the names and meanings of existing files and are opened in place; everything else we
need lives in side tables of our own, all called `hermes_…`.
"""
