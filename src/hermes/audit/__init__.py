"""The audit: what older versions did to conversations, found in log and store, and mended on request.

    logs ── audit_log ── anomalies, crossings ─┐
    state.db ── read_case ── (pure) ───────────┴─ find_damage ── Damage(code, detail, steps)
                                                                    └─ repair: backup, then a hundred in a transaction

Finding changes nothing. A repair records beside the messages and deletes nothing.
"""
