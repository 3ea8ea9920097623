"""`python -m fencehold.cli`: the same as `fencehold`, where that is not on the path."""

from fencehold.cli.main import main

if __name__ == "__main__":
    main()
