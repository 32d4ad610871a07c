"""A cost model of plans that learns from measurements: it ranks plans before any of them is measured.

``features`` describes a plan with its sizes and its processor as numbers, ``training`` learns from plans with
their times, ``trees`` is what was learned, as a file that anyone may have written, and ``ranking`` orders
plans by it where it was better than the families' own models.
"""
