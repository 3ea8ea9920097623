"""Placement: which shard is the home of a name, and which node leads it. Values and decisions only, no I/O."""
