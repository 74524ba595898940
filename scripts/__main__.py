"""Where the `plait` command begins: Ctrl-C is looked after before anything else is imported."""

from plait.scripts.interrupts import end_at_once_when_interrupted


def main() -> None:
    """Run the command line and exit."""
    end_at_once_when_interrupted()
    from plait.scripts.main import main as run

    run()


if __name__ == "__main__":
    main()
