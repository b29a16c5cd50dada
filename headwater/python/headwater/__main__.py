"""`python -m headwater`, where the script of that name is not on the path."""

import sys

from headwater.cli.main import main

sys.exit(main())
