"""API calls within the limits of a platform."""
