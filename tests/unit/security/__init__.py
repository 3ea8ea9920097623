"""Who is let in, as whom, and what is written down about it."""
