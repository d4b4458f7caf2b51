"""The HTTP layer: parses and authorizes requests, calls the engine, and serializes responses. It has no memory
logic."""
