"""Actions on a conversation (stop, reset, mute, choose), its status, and reports on its turns."""
