"""ADK agents: loaded, routed, run, and their events."""
