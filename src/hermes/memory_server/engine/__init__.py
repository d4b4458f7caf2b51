"""The memory engine: every function takes an open transaction and returns plain values.

keeps       messages, sessions, members, peers, workspaces, scopes, files (parsing), filters, paging
reads       sentences ── sentence_kinds, value_shapes; standing_kinds
learns      derive ── conclusions, truth, standing, cards, summaries, dreams, rereading
finds       search ── words, candidates, memory_index(es), postings, vectors, near_vectors, finer, narrowing
recalls     recall, context; dialectic, and with a model reasoning ── reading, quotes, composing
forgets     removal, deletion, peer_deletion, departures, tidying; merging, merge_moves
carries     export, importing, clone
in between  jobs ── kinds ── worker; webhooks, health; once, answers (idempotency); grants, sign_ins
"""
