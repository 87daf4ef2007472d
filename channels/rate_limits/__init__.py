"""Rate limits of platform APIs: limiters with priorities, calls with retries."""
