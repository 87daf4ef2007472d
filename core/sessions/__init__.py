"""Sessions: ADK's services over the database, history, summaries, resuming, routing."""
