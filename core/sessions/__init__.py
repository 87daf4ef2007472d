"""Sessions: ADK's services on our database, history, summaries, resuming, routing."""
