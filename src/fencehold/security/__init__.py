"""Security: authentication, the right that each command needs, and the audit log."""
