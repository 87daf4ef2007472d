"""Workers: leases, and how work is shared among them."""
