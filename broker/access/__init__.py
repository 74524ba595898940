"""How somebody shows who it is: passwords, tokens, certificates, and the conversation about them.

Without I/O, without a clock and without random numbers: `broker/net` brings these.
"""
