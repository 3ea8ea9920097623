"""The HTTP listener: JSON for people and scripts, served in a process of its own."""
