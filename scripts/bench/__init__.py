"""Measurements: `plait bench` runs them."""
