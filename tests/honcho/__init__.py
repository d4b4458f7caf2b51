"""The Honcho provider."""
