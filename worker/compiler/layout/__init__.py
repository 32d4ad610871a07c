"""Passes over Relax that choose how tensors and weights lie in memory.

``blocked`` puts images in blocks of channels, ``pack_linear`` packs the weights of linear layers,
``attention`` makes one function of each attention, and ``memory`` lets joins and slices share storage.
"""
