"""What a turn shows besides the growing text of its reply."""
