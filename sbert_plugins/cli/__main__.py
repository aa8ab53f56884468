"""``python -m sbert_plugins.cli``."""

import sys

from sbert_plugins.cli.command import main

sys.exit(main())
