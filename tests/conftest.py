"""What all tests share: how hypothesis behaves on machines that differ in speed."""

from hypothesis import settings

# A deadline would be an assertion on the clock.
settings.register_profile("plait", deadline=None)
settings.load_profile("plait")
