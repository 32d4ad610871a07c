"""The pass ``BlockConvolutions``: images in blocks of channels, ``[N, C / lanes, rows, columns, lanes]``."""
