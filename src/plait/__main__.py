"""`python -m plait` is the `plait` command."""

from plait.scripts.__main__ import main

if __name__ == "__main__":
    main()
