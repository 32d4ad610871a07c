"""The passes ``ShareMemory`` and ``ShareStorage``: joins and slices without copies."""
