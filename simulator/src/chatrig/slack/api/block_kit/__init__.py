"""Block Kit: checks of blocks, elements and views by Slack's published limits."""
