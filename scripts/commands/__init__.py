"""One file per family of subcommands; `scripts/main.py` loads the one that was asked for."""
