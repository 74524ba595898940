"""A broker as a deterministic machine, and how it is rebuilt when its host has failed."""
