"""The etcd engine."""
