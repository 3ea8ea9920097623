"""The gRPC listener: the typed interface of `proto/fencehold/v1`, served in a process of its own."""
