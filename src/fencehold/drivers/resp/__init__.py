"""Whatever speaks Redis's protocol: the URL, connections, commands and replies, and what a failure means."""
