"""Convolutions of images in blocks of channels, ``[N, C / lanes, rows, columns, lanes]``.

Three families, ``conv2d`` (dense and grouped), ``depthwise`` and ``transposed``, share the recognition and
the tile of ``windows``. Images of one and three dimensions count too: all dimensions but the last are the
rows. A fourth, ``winograd``, computes dense convolutions of 3 x 3 taps with fewer products.
"""
