"""The simulator: the same cores as over TCP, driven in virtual time by a seed."""
