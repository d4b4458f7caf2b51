"""The memory server: the Honcho v3 HTTP API over one folder, with a database inside and no other service.

    request ── api (parses, checks who asks) ── engine (knows) ── db (stores) ── api (serialises)
                                                  │ in the same transaction
                                                job ── worker ── engine

It knows nothing of agents. `api.app.create_app` is the door; `hermes memory serve` opens it.
"""
