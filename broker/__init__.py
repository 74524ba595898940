"""The node: messages, codec, limits, the broker's core and the client's. No I/O outside net/."""
