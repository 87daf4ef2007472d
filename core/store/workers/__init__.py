"""Workers: leases, fencing tokens, shard assignment, shared rate limits."""
