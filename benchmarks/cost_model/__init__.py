"""Measures plans, trains the cost model that ships with the project, and judges it on other functions."""
