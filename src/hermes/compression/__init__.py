"""Compression: long conversations get a summary, and keep their id, their order and every message.

    lease ── cut (pure) ── last look ‖ summarise (the one model call) ── commit: one row, compare-and-set on the epoch

Nothing is rewritten: the row marks a horizon up to which the model sees a summary. Messages that arrive meanwhile come
after the horizon, and the next turn sees them. A failed summary removes nothing; at the model's limit a digest made
without a model replaces it.
"""
