"""The command line. Commands read the way a person asks; all that print tables also take `--json`."""
