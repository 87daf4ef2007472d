"""Sessions: ADK's services, history, summaries, resumed runs, choice of the agent."""
