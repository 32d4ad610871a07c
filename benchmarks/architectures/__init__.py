"""How many public architectures get from export to a verified library.

The packages they come from are no dependency of Bessemer. torchvision, timm and transformers are used where
they
are installed, with random weights and small configurations.
"""
