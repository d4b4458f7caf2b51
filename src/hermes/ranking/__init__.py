"""What makes a message fit a question, as pure functions: no database, no HTTP, no model.

question ── words, names, dates ─┐
                                 ├── evidence of each candidate ── score ── order, and how sure
message ── traits, words ────────┘
"""
