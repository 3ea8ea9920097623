"""`python -m fencehold.observe`: started by a node, beside itself."""

import sys

from fencehold.observe.observer import main

if __name__ == "__main__":
    main(sys.argv[1:])
