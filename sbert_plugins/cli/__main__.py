"""``python -m sbert_plugins.cli``."""

import sys

from sbert_plugins.cli.main import main

sys.exit(main())
