"""HTTP: parse, check who asks, call the engine, serialise. Nothing here knows how memory works."""
