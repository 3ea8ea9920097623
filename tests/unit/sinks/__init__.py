"""What carries events into other systems, on real servers."""
