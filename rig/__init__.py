"""The rig: real servers on loopback, for tests, benchmarks and `make cluster`. Started here, ended here."""
