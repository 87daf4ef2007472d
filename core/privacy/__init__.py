"""Privacy: export, deletion, retention, redaction, vault of encrypted secrets."""
