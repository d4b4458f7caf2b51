"""Ranking of messages for a question, and classification of texts (`utterances`, `personal`), as pure functions: no
database, no HTTP, no model.

question ── words, names, dates ─┐
                                 ├── evidence of each candidate ── score ── order, and how sure
message ── traits, words ────────┘
"""
