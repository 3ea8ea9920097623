"""The async client: what applications on an event loop call."""
