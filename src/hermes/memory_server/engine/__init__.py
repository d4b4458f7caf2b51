"""The memory engine: every function takes an open transaction and returns plain values."""
