"""Usage: metering of model calls, prices, spending, and limits per person and place."""
