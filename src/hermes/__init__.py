"""An agent host with durable long-term memory."""

__version__ = "0.1.0"
