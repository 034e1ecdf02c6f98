"""``python -m etproto``: see `etproto.cli`."""

from __future__ import annotations

import sys

from etproto.cli import main

if __name__ == "__main__":
    sys.exit(main())
