"""Security: who is at the other end, what it must show, and what each command needs."""
