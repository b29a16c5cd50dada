"""`python -m confluence`, where the script of that name is not on the path."""

import sys

from confluence.cli.main import main

sys.exit(main())
