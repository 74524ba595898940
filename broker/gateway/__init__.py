"""Doors for the clients of other protocols: their codecs, without I/O."""
