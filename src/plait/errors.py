"""The root of every error that plait raises on purpose."""


class PlaitError(Exception):
    """What a program that uses plait may want to catch; each package has its own kinds of it."""
