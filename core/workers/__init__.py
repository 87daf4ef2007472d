"""Workers: leases, fencing tokens, shard assignment, and limits shared among workers."""
