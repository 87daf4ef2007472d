"""Privacy: export, deletion, retention, redaction, and the vault of encrypted secrets."""
