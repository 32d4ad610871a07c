"""A survey: which public architectures compile to a verified library.

It uses torchvision, timm and transformers if they are installed, with random weights and small
configurations.
"""
