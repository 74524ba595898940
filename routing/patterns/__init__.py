"""Patterns in what a subscriber is given: their language, and what finds them. No I/O, no clock."""
