"""Turns: claims, the worker loop, cancelling, reruns, and history compaction."""
