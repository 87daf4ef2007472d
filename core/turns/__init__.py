"""Turns (runs of the agent): claims, worker loop, stops, reruns, compaction."""
