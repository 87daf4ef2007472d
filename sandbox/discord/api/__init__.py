"""REST API of the local Discord: routes, limits, faults."""
