"""Security: who is let in and as whom, what each command needs, and what is written down about it."""
