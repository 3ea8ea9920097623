"""The zookeeper engine."""
