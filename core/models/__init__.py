"""Models: provider contract, ADK adapter, selection, retries, media, token counts."""
