"""A client's core: a leaf of the tree, which keeps steps, streams and a session with one broker."""
