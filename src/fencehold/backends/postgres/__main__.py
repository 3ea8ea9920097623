"""Prints what the backend needs in the database: for an administrator, if the application may not create it."""

import sys

from fencehold.backends.postgres.store import SCHEMA, TABLE
from fencehold.backends.postgres.tables import script

sys.stdout.write(script(*(sys.argv[1:3] + [SCHEMA, TABLE][len(sys.argv[1:3]) :])))
