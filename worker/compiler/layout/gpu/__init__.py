"""Layouts for GPUs: channels last in memory, and linear layers instead of convolutions without overlap."""
