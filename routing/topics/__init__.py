"""Order among topics: total notification order, as two documents have it, and as it holds."""
