"""Messages that ask people to decide: approvals and an agent's questions."""
