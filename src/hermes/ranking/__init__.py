"""What makes a message fit a question, and what kind of thing is said (`utterances`, `personal`), as pure functions: no
database, no HTTP, no model.

question ── words, names, dates ─┐
                                 ├── evidence of each candidate ── score ── order, and how sure
message ── traits, words ────────┘
"""
