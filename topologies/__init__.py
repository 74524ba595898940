"""Overlays of brokers, and the language that describes them, their workload and their faults."""
