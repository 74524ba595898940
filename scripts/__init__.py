"""The `plait` command: parses, calls one function, prints. The functions live here too."""
