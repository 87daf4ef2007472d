"""From what an agent says to the messages of a platform."""
