"""Translation rules: what each operator of an exported program becomes in Relax.

A rule is one function for one operator; each file holds those of one kind. Rules come from the entry points
of
``POINT`` in ``registry.py``, the built-in ones too; TVM's own converters serve what has no rule.
"""
