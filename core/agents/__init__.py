"""ADK agents: loading, running, plugins, and their events as stream events."""
