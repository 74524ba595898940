"""Surviving failures, and proving it: the record of a run and the judge that reads it.

The protocol half keeps the overlay whole while brokers fail. The other half is evidence:
`history` is what every node writes down as things happen, `guarantees` tells from that alone
which promises were kept. Nothing here opens a socket or reads a clock.
"""
