"""`python -m autosched` is the command `autosched`."""

import sys

from autosched.cli import main

sys.exit(main())
