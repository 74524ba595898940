"""MQTT 5.0 and 3.1.1."""
