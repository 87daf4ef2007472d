"""HTTP routes of other programs: hooks and tickets."""
