"""What models cost: metering, prices, limits."""
