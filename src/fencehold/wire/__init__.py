"""The typed interface as it travels: messages made of `proto/`, and the services that carry them."""
