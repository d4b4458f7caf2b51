"""The conversation log: every session and message of a profile, in one file, `state.db`.

    append ──> messages (never rewritten)          compression ──> one row beside them
                     └──────────── live_view (pure) ────────────┘ ──> what the model sees

The tables `sessions` and `messages` keep the names and meanings of existing files, which are opened in place.
Everything else is stored in side tables named `hermes_…`.
"""
