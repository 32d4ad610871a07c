"""Loops over the steps of recurrent layers."""
