"""Doors: the protocols a node speaks. They translate and decide nothing."""
