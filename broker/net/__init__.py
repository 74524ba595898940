"""The node on TCP, with trio: the broker as a program, and the client library.

Applications import from `plait` itself what they need::

    from plait import connect
"""
