"""REST API of the local Discord: routes, rate limits and faults."""
