"""The audit: finds what older versions did to conversations, in logs and store, and repairs it on request.

    logs ── audit_log ── anomalies, crossings ─┐
    state.db ── read_case ── (pure) ───────────┴─ find_damage ── Damage(code, detail, steps)
                                                                    └─ repair: backup, then a hundred in a transaction

Finding changes nothing. A repair writes its own records beside the messages and deletes nothing.
"""
