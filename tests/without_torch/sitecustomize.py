"""With this folder in ``PYTHONPATH``, Python runs as if torch were not installed: bundles do not need it."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]
