"""Compression: long conversations get a summary, and keep their id, their order and every message.

    lease ── cut (pure) ── last look ‖ summarise (the one model call) ── commit: one row, compare-and-set on the epoch

Nothing is rewritten: the row says up to where the model sees a summary. Messages that arrive meanwhile come after the
horizon and are seen by the next turn. A failed summary removes nothing; at the model's limit a digest takes its place.
"""
