"""Sessions: ADK's session, artifact and memory services; history, summaries, resuming, routing."""
