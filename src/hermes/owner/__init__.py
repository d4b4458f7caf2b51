"""What the owner asks of memory and sessions: commands and the web page print what these functions return."""
