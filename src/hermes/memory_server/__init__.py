"""The memory server: the Honcho v3 HTTP API over one folder, with an embedded database and no other service.

    request ── api (parses, authorizes) ── engine (rules) ── db (storage) ── api (serializes)
                                              │ in the same transaction
                                            job ── worker ── engine

It does not depend on the agent. `api.app.create_app` builds the application; `hermes memory serve` runs it."""
