"""`python -m torchjit COMMAND`: the command line, where no script of its name is on the path."""

import sys

from torchjit.cli import main

if __name__ == "__main__":
    sys.exit(main())
