"""The core of a host, which plays brokers of the tree: one, several, or none."""
