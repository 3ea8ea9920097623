"""The way of a thread to the service without a change of threads: it sends and receives itself."""
