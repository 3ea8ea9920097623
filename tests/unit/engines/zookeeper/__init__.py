"""The ZooKeeper engine: its parts, and what it does when connections and sessions end."""
