"""Rate limits of platform APIs: limiter with priorities, shares among workers, caller with retries."""
