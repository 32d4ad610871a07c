"""Layouts: passes over Relax that choose how tensors and weights lie in memory."""
