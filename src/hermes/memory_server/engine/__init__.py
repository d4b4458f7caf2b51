"""What the memory server knows: every function takes an open transaction and returns plain values."""
