"""Threads as a blocking client needs them: real ones or greenlets, and one with an event loop on it."""
