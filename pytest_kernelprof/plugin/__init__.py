"""The pytest plugin: hooks, settings, the fixtures, what is gathered for the report."""
