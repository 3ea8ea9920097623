"""The parts of the test suite itself."""
